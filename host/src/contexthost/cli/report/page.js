"use strict";
(function () {
  var plot = document.getElementById("plot");
  if (!plot) return;
  var tip = document.getElementById("tip");
  var points = Array.prototype.slice.call(plot.querySelectorAll(".point"));
  var cursor = document.createElement("span");
  cursor.className = "cursor";
  cursor.hidden = true;
  plot.insertBefore(cursor, tip);

  function element(name, text, className) {
    var made = document.createElement(name);
    made.textContent = text;
    if (className) made.className = className;
    return made;
  }
  function show(point) {
    var given = point.dataset;
    var rows = given.parts ? given.parts.split("|").reverse() : [];
    tip.replaceChildren(
      element("b", Number(given.total).toLocaleString("en") + " tokens"),
      element("small", given.what + (given.when ? " · " + given.when : ""))
    );
    rows.forEach(function (row) {
      var at = row.lastIndexOf("=");
      var name = row.slice(0, at);
      var line = element("div", "");
      line.append(
        element("span", "", "chip c-" + name.replace(/ /g, "-")),
        name,
        element("i", Number(row.slice(at + 1)).toLocaleString("en"))
      );
      tip.append(line);
    });
    tip.hidden = cursor.hidden = false;
    cursor.style.left = given.x + "%";
    cursor.style.setProperty("--at", given.y + "%");
    if (plot.clientWidth < 460) {  // no room beside the point: below the picture
      tip.style.left = "0";
      tip.style.top = plot.clientHeight + 26 + "px";
      return;
    }
    var x = (plot.clientWidth * given.x) / 100;
    var left = x + 14 + tip.offsetWidth > plot.clientWidth ? x - 14 - tip.offsetWidth : x + 14;
    tip.style.left = Math.max(-30, Math.min(left, plot.clientWidth - tip.offsetWidth)) + "px";
    tip.style.top = Math.max(0, Math.min((plot.clientHeight * given.y) / 100, plot.clientHeight - tip.offsetHeight)) + "px";
  }
  function hide() {
    var focused = document.activeElement;
    if (points.indexOf(focused) >= 0 && focused.matches(":focus-visible")) show(focused);
    else tip.hidden = cursor.hidden = true;
  }
  function go(to) {
    points.forEach(function (point, at) { point.tabIndex = at === to ? 0 : -1; });
    points[to].focus();
  }
  points.forEach(function (point, at) {
    point.addEventListener("pointerenter", function () { show(point); });
    point.addEventListener("focus", function () { show(point); });
    point.addEventListener("blur", hide);
    point.addEventListener("keydown", function (event) {
      var last = points.length - 1;
      var to = {
        ArrowRight: Math.min(at + 1, last), ArrowLeft: Math.max(at - 1, 0), Home: 0, End: last,
        PageDown: Math.min(at + 10, last), PageUp: Math.max(at - 10, 0)
      }[event.key];
      if (event.key === "Escape") tip.hidden = cursor.hidden = true;
      if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      go(to);
    });
  });
  plot.addEventListener("pointerleave", hide);
})();
