// Which extensions the real Pi loads, and what it makes of package sources.
//
//   node extensions.mjs DIR < REQUEST       (PI_OFFLINE is set by whoever runs this: nothing is to be installed)
//
// REQUEST is {homes: [{agentDir, cwd}], sources: [text]}; the answer has a list of paths for each home, and kind and
// name for each source.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const core = join(process.argv[2], "node_modules", "@earendil-works", "pi-coding-agent", "dist", "core");
const load = (name) => import(pathToFileURL(join(core, name)).href);
const { DefaultPackageManager } = await load("package-manager.js");
const { SettingsManager } = await load("settings-manager.js");

const managerOf = ({ agentDir, cwd }) =>
  new DefaultPackageManager({ cwd, agentDir, settingsManager: SettingsManager.create(cwd, agentDir) });

const request = JSON.parse(readFileSync(0, "utf8"));
const homes = [];
for (const home of request.homes) {
  const { extensions } = await managerOf(home).resolve();
  homes.push(extensions.filter((one) => one.enabled).map((one) => one.path));
}
const sources = request.sources.map((text) => {
  const parsed = managerOf(request.homes[0]).parseSource(text);
  if (parsed.type === "npm") return ["npm", parsed.name];
  return parsed.type === "git" ? ["git", `${parsed.host}/${parsed.path}`] : ["local", parsed.path];
});
console.log(JSON.stringify({ homes, sources }));
