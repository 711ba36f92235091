// The recording extension of test_hook_order_pi.py: writes each event as one line of the words of tests/support/live.py
// and does what `/do` told it: how to answer session_before_compact, to continue once, to draft a compaction.
import { appendFileSync } from "node:fs";

export default function (pi: any) {
  const file = process.env.RECORDER_LOG as string;
  let compacting = "answer";
  let goOn = 0;
  let draft = false;
  let settled: string | undefined;
  let summaries = 0;

  const note = (line: string) => appendFileSync(file, `${line}\n`);
  const busy = (ctx: any) => (ctx.isIdle() ? "idle" : "busy");
  const retry = (event: any) => (event.willRetry ? " retry" : "");

  pi.registerCommand("do", {
    description: "tell the recorder what to do",
    handler: async (args: string) => {
      const [what, value] = args.split(" ");
      if (what === "compacting") compacting = value;
      if (what === "go-on") goOn = 1;
      if (what === "draft") draft = true;
      if (what === "settled") settled = value;
    },
  });
  pi.registerTool({
    name: "echo",
    label: "echo",
    description: "the tool echo",
    parameters: { type: "object", properties: { text: { type: "string" } }, required: ["text"] },
    execute: async (_id: string, params: any) => ({ content: [{ type: "text", text: `echo ${params.text}` }] }),
  });
  pi.registerTool({
    name: "slow",
    label: "slow",
    description: "the tool slow",
    parameters: { type: "object", properties: {} },
    execute: (_id: string, _params: any, signal: AbortSignal) => {
      appendFileSync(`${file}.slow`, "waiting\n");
      return new Promise((_resolve, reject) => {
        signal.addEventListener("abort", () => reject(new Error("Operation aborted")));
      });
    },
  });

  pi.on("session_start", (event: any) => note(`session_start ${event.reason}`));
  pi.on("session_shutdown", (event: any) => note(`session_shutdown ${event.reason}`));
  pi.on("input", (event: any, ctx: any) => {
    const queued = event.streamingBehavior ? ` ${event.streamingBehavior}` : "";
    note(`input ${busy(ctx)}${queued}: ${event.text}`);
  });
  pi.on("agent_start", (_event: any, ctx: any) => note(`agent_start ${busy(ctx)}`));
  pi.on("context", () => note("context"));
  pi.on("turn_end", (event: any) => {
    note(`turn_end ${event.turnIndex} ${event.outcome} results=${event.toolResults.length}`);
    if (!draft) return undefined;
    draft = false;
    const compaction = { type: "compaction", summary: `summary ${++summaries}`, firstKeptEntryId: event.messageEntryId };
    return { entries: [compaction] };
  });
  pi.on("agent_before_settle", (event: any) => {
    note(`before_settle ${event.outcome}`);
    if (goOn === 0) return undefined;
    goOn = 0;
    const message = { type: "custom_message", customType: "recorder", content: "one thing more", display: false };
    return { entries: [message], continue: true };
  });
  pi.on("agent_settled", (event: any, ctx: any) => {
    note(`settled ${event.aborted ? "aborted" : "done"} ${busy(ctx)}`);
    const ask = settled;
    settled = undefined;
    if (ask === "compact") ctx.compact({});
    if (ask === "send") pi.sendUserMessage("more", { deliverAs: "followUp" });
  });
  pi.on("session_before_compact", async (event: any) => {
    note(`before_compact ${event.reason}${retry(event)}`);
    if (compacting === "cancel") return { cancel: true };
    if (compacting === "wait" && !event.signal.aborted) {
      appendFileSync(`${file}.slow`, "waiting\n");
      await new Promise<void>((resolve) => event.signal.addEventListener("abort", () => resolve()));
    }
    if (compacting !== "answer") return undefined;
    const { firstKeptEntryId, tokensBefore } = event.preparation;
    return { compaction: { summary: `summary ${++summaries}`, firstKeptEntryId, tokensBefore } };
  });
  pi.on("session_compact", (event: any) => {
    note(`compact ${event.reason} ${event.fromExtension ? "plugin" : "built-in"}${retry(event)}`);
  });
  pi.on("session_compact_failed", (event: any) => {
    note(`compact_failed ${event.reason} ${event.aborted ? "aborted" : "error"}`);
  });
}
