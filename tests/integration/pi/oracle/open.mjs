// What the real Pi's own session manager makes of session files when it opens them, one JSON object a file and line.
//
//   node open.mjs --pi DIR @LIST
//
// Opening may write to a file (it repairs and migrates): give copies. Files whose parents lead in a circle must not be
// given: Pi follows the circle until its memory is full.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const args = parseArgs({ allowPositionals: true, options: { pi: { type: "string", default: import.meta.dirname } } });
const dist = join(args.values.pi, "node_modules", "@earendil-works", "pi-coding-agent", "dist");
const load = (...parts) => import(pathToFileURL(join(dist, ...parts)).href);
const pi = await load("index.js");
const { prepareCompaction } = await load("core", "compaction", "compaction.js"); // not among the package's exports

function opened(path) {
  const session = pi.SessionManager.open(path);
  const { messages } = session.buildSessionContext();
  return {
    sessionId: session.getSessionId(),
    cwd: session.getCwd(),
    parentSession: session.getHeader().parentSession ?? null,
    entries: session.getEntries().length,
    leaf: session.getLeafId() ?? null,
    branch: session.getBranch().map((entry) => entry.id),
    estimatedTokens: messages.reduce((sum, message) => sum + pi.estimateTokens(message), 0),
    compactable: prepareCompaction(session.getBranch(), pi.DEFAULT_COMPACTION_SETTINGS) !== undefined,
    messages,
    sent: pi.convertToLlm(messages),
  };
}

const listed = (list) => readFileSync(list, "utf8").split("\n").filter(Boolean);
for (const path of args.positionals.flatMap((arg) => (arg.startsWith("@") ? listed(arg.slice(1)) : [arg]))) {
  let line;
  try {
    line = opened(path);
  } catch (error) {
    line = { error: String(error.message ?? error) };
  }
  process.stdout.write(`${JSON.stringify(line)}\n`);
}
