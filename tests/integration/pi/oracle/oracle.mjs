// What the real Pi makes of session files, as one JSON object per file and line, in the order asked for.
//
//   node oracle.mjs [--pi DIR] [--leaf ID] [--keep-recent N] [--messages] FILE... | @LIST
//
// DIR is where `npm ci` put Pi (default: beside this script). LIST names a file with one request a line: a path and,
// after a tab, optionally the leaf for that file alone. A request that fails prints `{"error": …}` and the next one runs.
//
// The keys are those that `contexthost inspect --json` promises. `cutPoint.rolesFromCut` and `preparation.rolesFromCut`
// exist only here: the roles of the first entry with messages at or after the cut, from which a test can tell a real
// split turn from one that Pi reports because metadata stands between the cut and the message that starts a turn.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const args = parseArgs({
  allowPositionals: true,
  options: {
    pi: { type: "string", default: import.meta.dirname },
    leaf: { type: "string" },
    "keep-recent": { type: "string" },
    messages: { type: "boolean", default: false },
  },
});
const dist = join(args.values.pi, "node_modules", "@earendil-works", "pi-coding-agent", "dist");
const load = (...parts) => import(pathToFileURL(join(dist, ...parts)).href);
const pi = await load("index.js");
const { prepareCompaction } = await load("core", "compaction", "compaction.js"); // not among the package's exports
const keepRecentTokens = Number(args.values["keep-recent"] ?? pi.DEFAULT_COMPACTION_SETTINGS.keepRecentTokens);

function sortKeys(value) {
  if (Array.isArray(value)) return value.map(sortKeys);
  if (value === null || typeof value !== "object") return value;
  const pairs = Object.keys(value).sort().filter((key) => value[key] !== undefined).map((key) => [key, sortKeys(value[key])]);
  return Object.fromEntries(pairs);
}

function digest(value) {
  return createHash("sha256").update(JSON.stringify(sortKeys(value))).digest("hex").slice(0, 16);
}

const digestOf = (message) => digest(message.content ?? message.summary ?? message.output ?? null);
const tokensOf = (messages) => messages.reduce((sum, message) => sum + pi.estimateTokens(message), 0);
const rolesOf = (messages) => messages.map((message) => message.role);

function readEntries(path) {
  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const lines = pi.parseSessionEntries(readFileSync(path, "utf8")).filter(isObject);
  if (lines[0]?.type !== "session" || typeof lines[0].id !== "string") throw new Error("not a session");
  pi.migrateSessionEntries(lines);
  return lines.filter((line) => line.type !== "session" && typeof line.id === "string");
}

// Pi itself would follow a cycle of parents until its memory is full.
function branchTo(leaf, entries) {
  const byId = new Map(entries.map((entry) => [entry.id, entry]));
  const branch = new Map();
  for (let entry = byId.get(leaf); entry !== undefined; entry = byId.get(entry.parentId)) {
    if (branch.has(entry.id)) throw new Error(`parent cycle at ${entry.id}`);
    branch.set(entry.id, entry);
  }
  return [...branch.values()].reverse();
}

function firstRoles(entriesFromCut, messagesOf) {
  for (const entry of entriesFromCut) {
    const messages = messagesOf(entry);
    if (messages.length > 0) return rolesOf(messages);
  }
  return [];
}

function describe(path, leaf) {
  const entries = readEntries(path);
  const positions = new Map(entries.map((entry, index) => [entry.id, index]));
  const positionOf = (entry) => positions.get(entry?.id) ?? null;
  leaf ??= entries.at(-1)?.id;
  const branch = branchTo(leaf, entries);
  const context = pi.buildContextEntries(entries, leaf);
  const projection = pi.buildSessionProjection(entries, leaf);
  const cut = pi.findCutPoint(context, 0, context.length, keepRecentTokens);
  const prepared = prepareCompaction(branch, { ...pi.DEFAULT_COMPACTION_SETTINGS, keepRecentTokens });
  const line = {
    entries: entries.length,
    contextPositions: context.map(positionOf),
    model: projection.model,
    thinkingLevel: projection.thinkingLevel,
    projected: projection.entries.filter(({ messages }) => messages.length > 0).map(({ sourceEntry, messages }) => ({
      position: positionOf(sourceEntry),
      roles: rolesOf(messages),
      contentDigests: messages.map(digestOf),
      estimatedTokens: tokensOf(messages),
    })),
    estimatedTokens: tokensOf(projection.messages),
    cutPoint: {
      firstKeptPosition: positionOf(context[cut.firstKeptEntryIndex]),
      turnStartPosition: positionOf(context[cut.turnStartIndex]),
      isSplitTurn: cut.isSplitTurn,
      rolesFromCut: firstRoles(context.slice(cut.firstKeptEntryIndex), pi.sessionEntryToContextMessages),
    },
    preparation: null,
    serializedDigest: digest(pi.serializeConversation(pi.convertToLlm(projection.messages))),
  };
  if (prepared) {
    const { read, written, edited } = prepared.fileOps;
    const keptFrom = projection.entries.findIndex(({ sourceEntry }) => sourceEntry.id === prepared.firstKeptEntryId);
    line.preparation = {
      firstKeptPosition: positions.get(prepared.firstKeptEntryId),
      messagesToSummarize: prepared.messagesToSummarize.map(digestOf),
      turnPrefixMessages: prepared.turnPrefixMessages.map(digestOf),
      isSplitTurn: prepared.isSplitTurn,
      tokensBefore: prepared.tokensBefore,
      previousSummary: prepared.previousSummary ?? null,
      readFiles: [...read].sort(),
      changedFiles: [...written.union(edited)].sort(),
      rolesFromCut: firstRoles(projection.entries.slice(keptFrom), ({ messages }) => messages),
    };
  }
  if (args.values.messages) line.messages = projection.messages;
  return line;
}

const listed = (list) => readFileSync(list, "utf8").split("\n").filter(Boolean).map((request) => request.split("\t"));
const requests = args.positionals.flatMap((arg) => (arg.startsWith("@") ? listed(arg.slice(1)) : [[arg]]));
for (const [path, leaf] of requests) {
  let line;
  try {
    line = describe(path, leaf ?? args.values.leaf);
  } catch (error) {
    line = { error: String(error.message ?? error) };
  }
  process.stdout.write(`${JSON.stringify(line)}\n`);
}
