// How long the real Pi takes to load and project a session file, in milliseconds, in a process that has done nothing
// else: `node time.mjs PI_DIRECTORY FILE`.
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const [home, file] = process.argv.slice(2);
const core = join(home, "node_modules", "@earendil-works", "pi-coding-agent", "dist", "core");
const { buildSessionProjection, loadEntriesFromFile } = await import(pathToFileURL(join(core, "session-manager.js")).href);
const started = process.hrtime.bigint();
const entries = loadEntriesFromFile(file).slice(1);
const projection = buildSessionProjection(entries, entries.at(-1).id);
const milliseconds = Number(process.hrtime.bigint() - started) / 1e6;
console.log(JSON.stringify({ milliseconds, messages: projection.messages.length }));
