/**
 * contexthost in Pi: written by `contexthost pi install`, removed by `contexthost pi uninstall`.
 *
 * This file starts a Python process beside Pi, tells it what happens in the session, and hands Pi what the installed
 * contexthost plugins answer. It decides nothing itself, with one exception: input that a plugin holds back is kept
 * here, so that it survives the Python process. Whatever goes wrong over there, Pi goes on as if this file were not
 * here. The protocol is described in contexthost's docs/pi-bridge.md.
 *
 * It is one file because it is installed as one. Each part uses only those above it:
 *
 *   Connection   one Python process, and the JSON-RPC connection to it
 *   Pi           Pi, as all parts see it
 *   PythonSide   one process after the other: asks it, looks whether it lives, starts it again
 *   News         the entries that it has not seen
 *   Listening    which of Pi's costly hooks are listened to: those that a plugin wants now
 *   Compactions  those that plugins ask for, and the plugins' part in Pi's own
 *   Sender       messages on their way into Pi
 *   Inputs       what plugins make of input, and what they hold back
 *   Tools        the plugins' tools and commands
 *   Session      puts them together: hears what happens in Pi, does what the Python side asks for
 */

import { AsyncLocalStorage } from "node:async_hooks";
import { type ChildProcess, spawn } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import { delimiter, isAbsolute } from "node:path";

/** Filled in by `contexthost pi install`: what to start, how long to wait for that, and what the plugins register. */
const INSTALLED = {
  /*@installed*/
  version: "",
  digest: "",
  command: [] as string[],
  startSeconds: 10,
  tools: [] as { name: string; description: string; parameters: any }[],
  commands: [] as { name: string; description: string }[],
  /*@end*/
};

const PROTOCOL = 1;

/** Seconds. The Python side sends its own for most of them when it has started. */
const limits = { start: INSTALLED.startSeconds, answer: 2, compaction: 120, tool: 600, heartbeat: 5, end: 2 };

const MISSED_HEARTBEATS = 3;
const STARTING = 5000; // milliseconds from an input to its run, at most: it may fail before it starts
const COMING = 50_000; // milliseconds from a try to its arrival at `input`, at most: extensions before ours may ask the user
const BACK_OFF = { first: 1000, factor: 4, longest: 300_000, healthyAfter: 60_000 }; // milliseconds
const HELD = "contexthost:held";
const SENT = "contexthost:sent";
const MARK = "contexthost:addressed:";
const STRAY = Symbol.for("contexthost:stray"); // of `globalThis`: the session of this process shows a message of another
const LONGEST = 2 ** 31 - 1; // milliseconds: a timer that is set to more ends at once
const NEVER = Number.MAX_SAFE_INTEGER; // tokens: no context has so many

const CODE = { methodNotFound: -32601, versionMismatch: -32001, unsupported: -32002, nothingToCompact: -32003, failed: -32004, cancelled: -32800 };

type Level = "info" | "warning" | "error";
type Failure = "late" | "gone" | "aborted" | "refused" | "malformed";
type Answer = { ok: true; value: any } | { ok: false; why: Failure; code?: number; message: string };

/** Milliseconds from some moment on; the time of day may be set back. */
const now = () => performance.now();

function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

function textOf(content: any): string {
  if (typeof content === "string") return content;
  return (content ?? []).filter((block: any) => block?.type === "text").map((block: any) => block.text).join("\n");
}

/**
 * JSON, also of what is none: other extensions leave what they like in entries that Pi never writes (`--no-session`).
 * A big integer becomes a number, an object within itself null.
 */
function jsonOf(message: any): string {
  try {
    return JSON.stringify(message);
  } catch {
    const around: any[] = [];
    return JSON.stringify(message, function (this: any, _key: string, value: any) {
      while (around.length > 0 && around[around.length - 1] !== this) around.pop();
      if (typeof value === "bigint") return Number(value);
      if (typeof value !== "object" || value === null) return value;
      if (around.includes(value)) return null;
      around.push(value);
      return value;
    });
  }
}

// The connection ------------------------------------------------------------------------------------------------------

/**
 * The fields of what the Python side sends, in the events of its own methods and in its answers to ours; a `?` marks
 * those that may be missing or null. All is looked at when it comes: a value of another type would fail later, in a
 * timer of ours or where Pi draws it, and end Pi. What is only true or false does no harm. What is in the lists and
 * objects, blocks, images, headers, usage, entries, the Python side has looked at: it knows whose they are, and says it.
 */
const FIELDS: Record<string, Record<string, string>> = {
  "ui/notify": { message: "string", level: "string" },
  "ui/setStatus": { key: "string", text: "string?" },
  "ui/setEditorText": { text: "string" },
  "ui/confirm": { title: "string", message: "string", seconds: "number" },
  "model/credential": { provider: "string" },
  "boundary/watch": { asked: "number?", turn_end: "number", agent_before_settle: "number", before_provider_headers: "number?" },
  "session/compact": { to: "string?", instructions: "string?" },
  "session/send": { text: "string", images: "array" },
  "session/appendEntry": { customType: "string" },
  "deadline/extend": { id: "number", seconds: "number" },

  initialize: {
    version: "string",
    manifest: "string",
    startSeconds: "number?",
    answerSeconds: "number",
    compactionSeconds: "number",
    toolSeconds: "number",
    heartbeatSeconds: "number",
    warnings: "array",
  },
  "session/start": { wants: "array?", unavailableTools: "array?" },
  "tool/call": { content: "array" },
  "command/run": { text: "string?" },
  "hook/input": { text: "string?", images: "array?" },
  "hook/turn_end": { entries: "array?" },
  "hook/agent_before_settle": { entries: "array?" },
  "hook/session_before_compact": { compaction: "object?", reason: "string?", problem: "string?" },
  "hook/session_before_switch": { reason: "string?" },
  "hook/session_before_fork": { reason: "string?" },
  "hook/before_provider_headers": { headers: "object?" },
  "hook/before_provider_request": { payload: "object?" },
};

/** Throws when the value that came with a method, or in answer to it, cannot be used. */
function check(method: string, value: any): void {
  if (!(method in FIELDS)) return;
  if (typeOf(value) !== "object") throw new Error(`${method}: ${typeOf(value)} where an object must be`);
  for (const [name, wanted] of Object.entries(FIELDS[method])) {
    const type = typeOf(value[name]);
    const fits = type === "null" ? wanted.endsWith("?") : wanted.startsWith(type);
    if (!fits) throw new Error(`${method}: ${name} is ${type}, and must be ${wanted}`);
  }
}

function typeOf(value: any): string {
  return value === undefined || value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** A request (it has an id) or a notification of the Python side; the signal: the answer is no longer wanted. */
type Received = { method: string; event: any; id?: number; signal: AbortSignal };

/** A request that is not answered yet. */
type Waiting = { method: string; done: (answer: Answer) => void; extend: (seconds: number) => void };

/** Pi's, without what would let Python import from the directory that Pi runs in, a cloned repository for one: an empty
 * or a relative place. And without another Python's home, with which ours does not start. */
function environment(): NodeJS.ProcessEnv {
  const { PYTHONHOME: _, PYTHONPATH: given = "", ...others } = process.env;
  const places = given.split(delimiter).filter((place) => isAbsolute(place));
  return places.length > 0 ? { ...others, PYTHONPATH: places.join(delimiter) } : others;
}

/** One Python process and the JSON-RPC connection to it: one message a line. */
class Connection {
  alive = true;
  serving = false; // a session, at whose end plugins have something to do
  readonly startedAt = now();
  private readonly child: ChildProcess;
  private readonly waiting = new Map<number, Waiting>();
  private readonly asked = new Map<number, AbortController>(); // its requests: whether it still waits for the answer
  private lastId = 0;
  private parts: Buffer[] = [];
  private errors = "";
  private readonly exited: Promise<void>;
  /** When Pi ends without a word, as it does when its terminal has gone: who serves a session ends it by itself. */
  private readonly killAtExit = () => {
    if (!this.serving) this.kill();
  };

  constructor(
    command: string[],
    private readonly receive: (message: Received) => void, // what it throws is the answer, too
    private readonly failed: (why: string) => void,
    private readonly gone: (why: string) => void,
  ) {
    this.child = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "pipe"], env: environment() });
    process.once("exit", this.killAtExit);
    this.exited = new Promise((resolve) => {
      this.child.once("error", (error) => {
        this.end(`it cannot be started: ${error.message}`);
        resolve();
      });
      this.child.once("exit", (code, signal) => {
        const last = this.errors.trim().split("\n").pop() ?? "";
        this.end(`it ended with ${signal ?? `code ${code}`}${last ? `: ${last.slice(0, 300)}` : ""}`);
        resolve();
      });
    });
    this.child.stdin?.on("error", () => {}); // the exit says it
    this.child.stdout?.on("data", (chunk: Buffer) => this.read(chunk));
    this.child.stderr?.on("data", (chunk: Buffer) => {
      this.errors = (this.errors + chunk.toString()).slice(-4000);
    });
    // Pi's own end must not wait for this process.
    this.child.unref();
    for (const stream of [this.child.stdin, this.child.stdout, this.child.stderr]) (stream as any)?.unref?.();
  }

  notify(method: string, params: any): void {
    this.write({ jsonrpc: "2.0", method, params });
  }

  answer(id: number, result: any): void {
    this.asked.delete(id);
    this.write({ jsonrpc: "2.0", id, result });
  }

  refuse(id: number, code: number, message: string): void {
    this.asked.delete(id);
    this.write({ jsonrpc: "2.0", id, error: { code, message } });
  }

  /** Asks, and waits no longer than so many seconds; never rejects. */
  request(method: string, params: any, seconds: number, signal?: AbortSignal): Promise<Answer> {
    if (!this.alive) return Promise.resolve({ ok: false, why: "gone", message: "the Python side has gone" });
    if (signal?.aborted) {
      // Nobody wants the answer; what goes along about the session counts as told, and is told.
      if (params.sync) this.notify("sync", { sync: params.sync, state: params.state, event: {} });
      return Promise.resolve({ ok: false, why: "aborted", message: "aborted" });
    }
    const id = ++this.lastId;
    return new Promise((resolve) => {
      const giveUp = (why: "late" | "aborted", message: string) => {
        this.notify("cancel", { event: { id, kind: why === "late" ? "late" : "abort", reason: message } });
        done({ ok: false, why, message });
      };
      const arm = (limit: number) =>
        setTimeout(() => giveUp("late", `no answer to ${method} within ${Number(limit.toFixed(1))} s`), limit * 1000);
      let timer = arm(seconds);
      const onAbort = () => giveUp("aborted", "aborted");
      const done = (answer: Answer) => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", onAbort);
        if (this.waiting.delete(id)) resolve(answer);
      };
      signal?.addEventListener("abort", onAbort, { once: true });
      this.waiting.set(id, {
        method,
        done,
        extend: (limit) => {
          clearTimeout(timer);
          timer = arm(limit);
        },
      });
      this.write({ jsonrpc: "2.0", id, method, params });
    });
  }

  kill(): void {
    this.child.kill("SIGKILL");
  }

  /** Lets the process end by itself, and makes it end when it does not. */
  async stop(): Promise<void> {
    this.alive = false;
    this.child.stdin?.end();
    const timer = setTimeout(() => this.kill(), limits.end * 1000);
    await this.exited;
    clearTimeout(timer);
  }

  private write(message: any): void {
    if (this.alive || message.method === "cancel") this.child.stdin?.write(`${jsonOf(message)}\n`);
  }

  private read(chunk: Buffer): void {
    let start = 0;
    for (let at = chunk.indexOf(10); at >= 0; at = chunk.indexOf(10, start)) {
      const line = Buffer.concat([...this.parts, chunk.subarray(start, at)]);
      this.parts = [];
      start = at + 1;
      this.take(line);
    }
    if (start < chunk.length) this.parts.push(chunk.subarray(start));
  }

  private take(line: Buffer): void {
    let message: any;
    try {
      message = JSON.parse(line.toString("utf8"));
    } catch {
      return; // not ours: the Python side keeps standard output for the protocol alone
    }
    if (typeOf(message) !== "object") return; // nor is this
    if (typeof message.method === "string") this.takeMethod(message.method, message.params?.event ?? {}, message.id);
    else this.takeAnswer(message);
  }

  private takeMethod(method: string, event: any, id?: number): void {
    const asked = new AbortController();
    if (id !== undefined) this.asked.set(id, asked);
    try {
      check(method, event);
      if (method === "deadline/extend") this.waiting.get(event.id)?.extend(event.seconds);
      else if (method === "cancel") this.asked.get(event.id)?.abort();
      else this.receive({ method, event, id, signal: asked.signal });
    } catch (error) {
      if (id !== undefined) this.refuse(id, CODE.failed, reasonOf(error));
      else this.failed(reasonOf(error));
    }
  }

  private takeAnswer({ id, error, result }: any): void {
    const waiting = this.waiting.get(id);
    if (!waiting) return;
    if (error) {
      const message = typeof error.message === "string" ? error.message : "it was refused";
      return waiting.done({ ok: false, why: "refused", code: error.code, message });
    }
    try {
      check(waiting.method, result);
      waiting.done({ ok: true, value: result });
    } catch (problem) {
      waiting.done({ ok: false, why: "malformed", message: reasonOf(problem) });
    }
  }

  private end(why: string): void {
    const wasAlive = this.alive;
    this.alive = false;
    process.off("exit", this.killAtExit);
    for (const waiting of [...this.waiting.values()]) waiting.done({ ok: false, why: "gone", message: why });
    for (const asked of this.asked.values()) asked.abort();
    if (wasAlive) this.gone(why);
  }
}

// Pi ------------------------------------------------------------------------------------------------------------------

/** Pi, as all parts see it: its API, the context of the session, what goes on in it, and words for the user. */
class Pi {
  ctx: any; // since `session_start`
  running = false; // between agent_start and agent_settled
  readonly inputs = new Map<Promise<any>, any>(); // being looked at, and their events
  private startingSince = -Infinity;
  private ended = false;
  private readonly told = new Set<string>();

  constructor(readonly api: any) {}

  /** The session has ended, or is about to: Pi has said so, or (the SDK's `dispose` tells nobody) has dropped it. */
  get over(): boolean {
    try {
      if (!this.ended) void this.ctx?.mode;
    } catch {
      this.ended = true;
    }
    return this.ended;
  }

  end(): void {
    this.ended = true;
  }

  /** Pi may go on with a run of a session that it has replaced, and whose context must not be used any more. */
  on(name: string, handler: (event: any, ctx: any) => any): () => void {
    return this.api.on(name, (event: any, ctx: any) => (this.over ? undefined : handler(event, ctx)));
  }

  runStarted(): void {
    this.running = true;
    this.startingSince = -Infinity;
  }

  runSettled(): void {
    this.running = false;
  }

  inputPassed(): void {
    if (!this.running) this.startingSince = now();
  }

  /** Whether an input has gone through, and its run has not started yet. */
  isStarting(): boolean {
    return now() - this.startingSince < STARTING;
  }

  notify(message: string, level: Level): void {
    if (this.ctx.hasUI) this.ctx.ui.notify(message, level);
    else console.error(message);
  }

  notWritten(error: unknown): void {
    this.tellOnce("record", `contexthost: the session cannot be written: ${(error as Error).message}`, "error");
  }

  tellOnce(kind: string, message: string, level: Level): void {
    if (this.told.has(kind)) return;
    this.told.add(kind);
    this.notify(message, level);
  }
}

// The Python side -----------------------------------------------------------------------------------------------------

/** What the Python side needs of the session that it serves; `Session` below. */
interface Served {
  /** The parameters of `session/start`, but for its reason. */
  describe(reason: any, withEntries: boolean): any;
  /** The parameters of everything that comes later: what is new in the session, and an event. */
  params(event: any): any;
  /** Does what a process asks for, and answers it; what this throws is the answer, too. */
  receive(connection: Connection, message: Received): void;
  /** A process is there; it has tools that are unavailable in this session. */
  started(unavailableTools: string[]): void;
  /** A process has gone, or could not be started. */
  stopped(): void;
}

/** The Python side, one process after the other: asks it, looks whether it lives, and starts it again. */
class PythonSide {
  ready = false; // it knows the session, and can be asked
  hasRun = false; // it was ready once, in whichever process
  wants = new Set<string>(); // the hooks that some plugin implements
  private connection?: Connection;
  private reason: any;
  private firstStart?: Promise<void>;
  private lastStart?: Promise<void>; // over after `limits.start` in any case
  private problem = "it has not been started"; // why it is not there
  private broken = false; // cannot work before something is installed anew
  private backOff = BACK_OFF.first;
  private nextStart = 0;
  private heartbeat?: ReturnType<typeof setInterval>;
  private beating = false;

  constructor(private readonly pi: Pi, private readonly served: Served) {}

  /** Not awaited: Pi starts meanwhile, and the first input waits for it. */
  begin(reason: any): void {
    this.reason = reason;
    this.firstStart = this.lastStart = this.start();
  }

  /** The session is over. */
  async end(params: any): Promise<void> {
    clearInterval(this.heartbeat);
    const connection = this.connection;
    if (!connection) return;
    await connection.request("session/end", params, limits.end);
    await connection.stop();
  }

  // Asking

  sync(): void {
    if (this.ready && !this.pi.over) this.connection?.notify("sync", this.served.params({}));
  }

  /** Tells of something that needs no answer. */
  tell(hook: string, event: any): void {
    this.revive();
    if (this.ready && !this.pi.over) this.connection?.notify(`hook/${hook}`, this.served.params(event));
  }

  /** Asks the plugins; undefined when there is nobody to ask, or no answer in time. */
  async ask(hook: string, event: any, seconds: number, signal?: AbortSignal): Promise<any> {
    if (!(await this.up())) return undefined;
    const answer = await this.connection!.request(`hook/${hook}`, this.served.params(event), seconds, signal);
    if (answer.ok) return answer.value;
    if (answer.why === "late") {
      this.pi.tellOnce("late", `contexthost: ${answer.message}. Pi goes on without it.`, "warning");
    } else if (answer.why === "malformed") this.unusable(answer.message);
    return undefined;
  }

  /** For a tool or a command, which is nothing without an answer: throws, with the reason, when there is none. */
  async call(method: string, event: any, what: string, signal?: AbortSignal): Promise<any> {
    const connection = await this.reach(signal);
    const answer = await connection.request(method, this.served.params(event), limits.tool, signal);
    if (answer.ok) return answer.value;
    if (answer.why !== "late") throw new Error(answer.message);
    const limit = `${limits.tool} s`;
    throw new Error(`${what} took longer than ${limit} and was ended (pi.toolSeconds in host.json is the limit)`);
  }

  /** Whether it can be asked; starts it again when its time has come. */
  async up(): Promise<boolean> {
    if (this.pi.over || this.broken) return false;
    if (!this.ready && this.firstStart) await this.firstStart;
    this.revive();
    return this.ready && !this.pi.over;
  }

  private revive(): void {
    if (this.pi.over || this.broken || this.connection || !this.firstStart || now() < this.nextStart) return;
    this.reason = { reason: "reload" };
    this.lastStart = this.start(); // no event waits: Pi goes on without it until it is there
  }

  /** Somebody asks for it now: it is started before its time, and a start that is under way is waited for. */
  private async reach(signal?: AbortSignal): Promise<Connection> {
    if (!this.pi.over && !this.broken) {
      this.nextStart = 0;
      this.revive();
      const aborted = new Promise((resolve) => signal?.addEventListener("abort", resolve, { once: true }));
      await Promise.race([this.lastStart, aborted]);
    }
    if (signal?.aborted) throw new Error("aborted");
    if (this.ready && !this.pi.over && this.connection) return this.connection;
    throw new Error(`contexthost is not running (${this.problem})`);
  }

  // Its processes

  private async start(): Promise<void> {
    let connection: Connection | undefined;
    try {
      connection = new Connection(
        INSTALLED.command,
        (message) => this.receive(connection!, message),
        (why) => this.unusable(why),
        (why) => this.gone(why, connection),
      );
      this.connection = connection;
      await this.introduce(connection);
    } catch (error) {
      if (connection) this.startFailed(connection, { ok: false, why: "refused", message: reasonOf(error) });
      else this.gone(`it cannot be started: ${reasonOf(error)}`, undefined);
    }
  }

  /** Tells a new process of Pi and of the session. */
  private async introduce(connection: Connection): Promise<void> {
    const began = now();
    const left = () => Math.max(limits.start - (now() - began) / 1000, 0.001);
    const hello = { protocol: PROTOCOL, version: INSTALLED.version };
    const greeting = await connection.request("initialize", { event: hello }, left());
    if (!greeting.ok) return this.startFailed(connection, greeting);
    const { answerSeconds, compactionSeconds, toolSeconds, heartbeatSeconds } = greeting.value;
    limits.answer = answerSeconds;
    limits.compaction = compactionSeconds;
    limits.tool = toolSeconds;
    limits.heartbeat = heartbeatSeconds;
    if (this.pi.over) return void connection.stop();
    let started = await connection.request("session/start", this.served.describe(this.reason, false), left());
    if (started.ok && started.value.need === "entries" && !this.pi.over) {
      started = await connection.request("session/start", this.served.describe(this.reason, true), left());
    }
    if (!started.ok) return this.startFailed(connection, started);
    if (this.pi.over) return void connection.stop();
    const { wants, unavailableTools } = started.value;
    if (!wants || !unavailableTools) throw new Error("session/start: the answer does not say what is wanted");
    this.ready = this.hasRun = connection.serving = true;
    this.wants = new Set(wants);
    this.lookAtVersion(greeting.value);
    for (const warning of greeting.value.warnings) this.pi.tellOnce(warning, `contexthost: ${warning}`, "warning");
    this.heartbeat = setInterval(() => void this.beat(connection), limits.heartbeat * 1000);
    this.heartbeat.unref?.();
    this.served.started(unavailableTools);
  }

  /** This file is as it was when it was installed; Python, the plugins and the settings may have changed. */
  private lookAtVersion({ version, manifest, startSeconds }: any): void {
    let changed = "";
    if (version !== INSTALLED.version) changed = `version ${version} is installed, and Pi still has ${INSTALLED.version}`;
    else if (manifest !== INSTALLED.digest) changed = "plugins have changed";
    else if ((startSeconds ?? INSTALLED.startSeconds) !== INSTALLED.startSeconds) changed = "the setting pi.startSeconds has changed";
    if (!changed) return;
    this.pi.tellOnce("manifest", `contexthost: ${changed}; run \`contexthost pi install\` and /reload.`, "warning");
  }

  private startFailed(connection: Connection, answer: Answer & { ok: false }): void {
    if (this.pi.over || answer.why === "gone") return; // `gone` has told it
    if (answer.code === CODE.versionMismatch) {
      this.broken = true;
      this.pi.tellOnce("version", `contexthost: ${answer.message}. Pi goes on without it.`, "error");
    }
    this.gone(answer.message, connection);
    connection.kill();
  }

  /** What is left of it after it went away: nothing that Pi could notice. */
  private gone(why: string, connection: Connection | undefined): void {
    if (connection !== this.connection) return;
    this.problem = why;
    const lived = connection ? now() - connection.startedAt : 0;
    this.ready = false;
    this.connection = undefined;
    clearInterval(this.heartbeat);
    if (this.pi.over) return;
    if (!this.broken) {
      if (lived > BACK_OFF.healthyAfter) this.backOff = BACK_OFF.first;
      this.nextStart = now() + this.backOff;
      this.backOff = Math.min(this.backOff * BACK_OFF.factor, BACK_OFF.longest);
      const note = `contexthost: the Python side has stopped (${why}). Pi goes on without it; it is started again.`;
      this.pi.tellOnce("gone", note, "warning");
    }
    this.served.stopped();
  }

  private async beat(connection: Connection): Promise<void> {
    if (this.pi.over) {
      clearInterval(this.heartbeat);
      return void connection.stop();
    }
    if (!connection.alive || this.beating) return;
    this.beating = true;
    for (const seconds of [limits.heartbeat * (MISSED_HEARTBEATS - 1), limits.heartbeat]) {
      const answer = await connection.request("ping", {}, seconds);
      if (answer.ok || answer.why !== "late") break;
      // Asked twice: after a machine has slept the first answer is late in any case.
      if (seconds === limits.heartbeat) connection.kill(); // its exit tells the rest
    }
    this.beating = false;
  }

  private unusable(why: string): void {
    if (this.pi.over) return;
    const note = `contexthost: the Python side sent what cannot be used (${why}). Pi goes on without it.`;
    this.pi.tellOnce("unusable", note, "warning");
  }

  private receive(connection: Connection, message: Received): void {
    // What plugins append in `session_shutdown` still belongs to the session; Pi refuses it when that is over.
    const open = !this.pi.over || message.method === "session/appendEntry";
    if (open && connection === this.connection) this.served.receive(connection, message);
    else if (message.id !== undefined) connection.refuse(message.id, CODE.failed, "the session is ending");
  }
}

// What Python knows ---------------------------------------------------------------------------------------------------

/** The entries of the session, as far as the Python side has not seen them. */
class News {
  private sent = 0;
  private leaf: string | null = null;
  private moved = false; // the leaf, other than by entries that were appended
  private readonly known = new Set<string>();

  constructor(private readonly pi: Pi) {}

  /** All there is, for a start. */
  all(): { from: 0; leaf: string | null; entries: any[] } {
    const manager = this.pi.ctx.sessionManager;
    const entries: any[] = manager.getEntries();
    this.sent = entries.length;
    this.leaf = manager.getLeafId();
    for (const entry of entries) this.known.add(entry.id);
    return { from: 0, leaf: this.leaf, entries };
  }

  /** The entries since the last message, and where the branch ends; undefined when nothing has changed. */
  take(): { from: number; leaf: string | null; entries: any[] } | undefined {
    const manager = this.pi.ctx.sessionManager;
    const leaf: string | null = manager.getLeafId();
    let fresh = this.moved ? undefined : appended(manager, this.leaf, leaf);
    if (fresh?.length && this.known.has(fresh[0].id)) fresh = undefined; // moved, and `session_tree` is yet to come
    if (fresh?.length === 0) return undefined;
    const from = this.sent;
    const entries = fresh ?? manager.getEntries().slice(from);
    for (const entry of entries) this.known.add(entry.id);
    this.moved = false;
    this.sent = from + entries.length;
    this.leaf = leaf;
    return { from, leaf, entries };
  }

  leafMoved(): void {
    this.moved = true;
  }

  /** The Python side has lost track: everything is new again. */
  again(): void {
    this.sent = 0;
    this.moved = true;
  }
}

/** What was appended to the branch: every entry becomes the leaf, so all lie between the old leaf and the new. */
function appended(manager: any, oldLeaf: string | null, leaf: string | null): any[] | undefined {
  const fresh: any[] = [];
  for (let at = leaf; at !== oldLeaf; at = fresh[fresh.length - 1].parentId ?? null) {
    const entry = at === null || fresh.length > 1000 ? undefined : manager.getEntry(at);
    if (!entry) return undefined; // not on the same branch: all entries must be looked at
    fresh.push(entry);
  }
  return fresh.reverse();
}

// Which hooks are listened to -----------------------------------------------------------------------------------------

/**
 * Handlers that make Pi prepare something for them are registered only while a plugin wants the hook: for whoever
 * listens to a boundary Pi builds the whole context anew, twice and more, and headers are a question for each request.
 * Plugins name the tokens of context from which on they want a boundary, and say whether they want headers (0, or never);
 * these numbers hold for the model and the settings of compactions that they were found with.
 */
class Listening {
  private readonly registered = new Map<string, (() => void) | undefined>(); // and what takes it away
  private boundaries: Record<string, number> = {}; // from how many tokens of context on each is wanted; default: always
  private asked = 0; // counts what may change these numbers: those that Python found before it hold no longer
  private model: any; // as the Python side knows it
  private changed?: any; // the same one with other limits, until Python is told
  private settings = ""; // those of compactions, with which Python found the numbers
  private coming: any; // the message that ended last; the session may not have it yet

  constructor(
    private readonly pi: Pi,
    private readonly python: PythonSide,
    private readonly handlers: Record<string, (event: any) => any>,
  ) {}

  /**
   * Looks what is wanted now. `coming` is about to get into the session; while other extensions look at it, it is
   * neither there nor may it be forgotten.
   */
  listen(coming?: any): void {
    if (this.pi.over) return;
    this.lookAtModel();
    if (coming) this.coming = coming;
    const measure = () => Math.max(this.contextAtMost(this.coming), coming ? 0 : this.contextAtMost());
    let size: number | undefined;
    for (const [name, handler] of Object.entries(this.handlers)) {
      const from = this.boundaries[name] ?? 0;
      const wanted = this.python.wants.has(name) && (from === 0 || (from < NEVER && (size ??= measure()) >= from));
      if (wanted && !this.registered.has(name)) this.registered.set(name, this.pi.on(name, handler));
      const stop = wanted ? undefined : this.registered.get(name);
      if (!stop) continue;
      stop();
      this.registered.delete(name);
    }
  }

  /** The numbers that plugins have named. */
  watch(event: any): void {
    if (event.asked !== this.asked) return; // the answer to what is asked now is on its way
    const { turn_end, agent_before_settle, before_provider_headers } = event;
    this.boundaries = { turn_end, agent_before_settle, before_provider_headers };
    this.listen();
  }

  /** Nobody is there who has named any. */
  forget(): void {
    this.boundaries = {};
  }

  /** The model and the settings, of which Python is told with this. */
  describe(): { model: any; compaction: any; asked: number } {
    const model = this.pi.ctx.model;
    const compaction = this.compactionSettings(model);
    this.settings = JSON.stringify(compaction);
    this.knows(model);
    return { model: describeModel(model), compaction, asked: this.asked };
  }

  /** Another model is in use, of which Python is told with this. */
  selected(model: any): { compaction: any; asked: number } {
    this.knows(model);
    const compaction = this.compactionSettings(model);
    this.askAnew(compaction);
    return { compaction, asked: this.asked };
  }

  /** A run starts, and Python is told of the settings with this: the user may have changed them. */
  runStarts(): { compaction: any; asked: number } {
    this.lookAtModel();
    const compaction = this.compactionSettings(this.pi.ctx.model);
    if (JSON.stringify(compaction) !== this.settings) this.askAnew(compaction);
    return { compaction, asked: this.asked };
  }

  /** The model, once, if Python does not know it as it is now. */
  changedModel(): any {
    this.lookAtModel();
    const model = this.changed;
    this.changed = undefined;
    return model;
  }

  private knows(model: any): void {
    this.model = model;
    this.changed = undefined;
  }

  /** Another extension may register the model in use anew, with another window: Pi goes over to it and tells nobody. */
  private lookAtModel(): void {
    const [before, model] = [this.model, this.pi.ctx.model];
    if (!this.python.ready || model === before) return;
    this.model = model;
    const described = describeModel(model);
    if (JSON.stringify(described) === JSON.stringify(describeModel(before))) return;
    this.changed = described;
    this.askAnew(this.compactionSettings(model));
  }

  /** The numbers that plugins named may hold no longer: all is wanted until Python has found new ones. */
  private askAnew(compaction: any): void {
    this.settings = JSON.stringify(compaction);
    this.asked++;
    this.boundaries = {};
    this.listen();
  }

  /** Pi's own, as it would read them now for this model; what is left out is as Pi has it by default. */
  private compactionSettings(model: any): any {
    const settings = this.pi.api.getSettings().compaction ?? {};
    const own = model ? settings.modelOverrides?.[`${model.provider}/${model.id}`] : undefined;
    return {
      enabled: settings.enabled,
      reserveTokens: own?.reserveTokens ?? settings.reserveTokens,
      keepRecentTokens: own?.keepRecentTokens ?? settings.keepRecentTokens,
    };
  }

  /** The tokens of the context by the provider's last word, and more than what came since has; Infinity: unknown. */
  private contextAtMost(coming?: any): number {
    const enough = Math.max(0, ...Object.values(this.boundaries).filter((from) => from < NEVER));
    let since = 0;
    const manager = this.pi.ctx.sessionManager;
    let at: string | null = manager.getLeafId();
    for (let step = coming ? 0 : 1; step < 1000; step++) {
      const entry = step === 0 ? { type: "message", message: coming } : at === null ? undefined : manager.getEntry(at);
      if (!entry || entry.type === "compaction" || entry.type === "context_edit") return Infinity;
      if (entry.message?.role === "assistant") return toldBy(entry.message) + since;
      if (entry.message) since += atMost(entry.message);
      if (entry.type === "custom_message" || entry.type === "branch_summary") since += atMost(entry);
      if (since >= enough) return since; // however many more there are, all is wanted
      if (step > 0) at = entry.parentId ?? null;
    }
    return Infinity;
  }
}

function describeModel(model: any): any {
  if (!model) return null;
  const { provider, id, api, contextWindow, maxTokens, promptCache, cost, baseUrl, headers } = model;
  const { reasoning, thinkingLevelMap, input } = model;
  const limits = { contextWindow, maxTokens, promptCache, cost, reasoning, thinkingLevelMap, input };
  return { provider, id, api, baseUrl, headers, ...limits };
}

/**
 * The tokens of the context up to an answer, as the provider has counted them. Infinity: it does not say, or the answer
 * failed or was cut off. Pi may take such a one out of the context again and tell nobody; then all is counted anew.
 */
function toldBy(message: any): number {
  const { input, output, cacheRead, cacheWrite, totalTokens } = message.usage ?? {};
  const told = totalTokens || input + output + cacheRead + cacheWrite;
  const whole = message.stopReason === "stop" || message.stopReason === "toolUse";
  return whole && Number.isFinite(told) && told > 0 ? Math.ceil(told) : Infinity;
}

/** More tokens than a message has: no token is shorter than a byte; an image counts as 1,200. */
function atMost(message: any): number {
  const blocks: any[] = Array.isArray(message.content) ? [message.sections, message.toolsAdded, ...message.content] : [message];
  const size = (block: any) => (block?.type === "image" ? 5000 : Buffer.byteLength(jsonOf(block) ?? ""));
  return blocks.reduce((sum, block) => sum + size(block), 100);
}

// Compactions ---------------------------------------------------------------------------------------------------------

/** A compaction that goes on: its mark if it was begun here, and why the plugin it is addressed to did not make it. */
type Compacting = { nonce: string; problem?: string };

/** The compaction that goes on, as far as this extension knows: those that plugins ask for, and Pi's own. */
class Compactions {
  seen = 0; // counts what Pi tells of them
  private current?: Compacting;
  private addressedTo?: string;

  constructor(private readonly pi: Pi, private readonly python: PythonSide) {}

  /** Also while Pi tells of the end: it counts as compacting, and refuses prompts, until all handlers are done. */
  isGoingOn(): boolean {
    // Of the second of two that overlap Pi tells no end.
    if (this.current?.nonce === "" && this.pi.ctx.isIdle()) this.current = undefined;
    return this.current !== undefined || this.isBusy();
  }

  /** Whether a run that begins now would be in the middle of one. */
  meetsRun(): boolean {
    return Boolean(this.current?.nonce) || this.isBusy();
  }

  /** Pi does something that is no run. */
  private isBusy(): boolean {
    return !this.pi.running && !this.pi.ctx.isIdle();
  }

  /** A plugin asks for one; the answer comes when it is over. */
  async start(connection: Connection, id: number, asked: any, signal: AbortSignal): Promise<void> {
    // An input that is being looked at may start a run, which a compaction must not meet half-way, or be held for it.
    while (this.pi.inputs.size > 0) await Promise.allSettled(this.pi.inputs.keys());
    if (this.pi.over || signal.aborted) return; // nobody wants it any more
    // From here to `ctx.compact` nothing is awaited: what is looked at is what the compaction meets.
    if (this.isGoingOn()) {
      connection.refuse(id, CODE.unsupported, "a compaction is going on already");
      return;
    }
    if (asked.onlyIfIdle && (!this.pi.ctx.isIdle() || this.pi.isStarting())) {
      connection.refuse(id, CODE.unsupported, "Pi is not idle");
      return;
    }
    const mine: Compacting = { nonce: randomUUID() };
    this.current = mine;
    const instructions = asked.instructions ?? undefined;
    const over = () => {
      if (this.current === mine) this.current = undefined;
    };
    this.pi.ctx.compact({
      customInstructions: asked.to ? `${MARK}${mine.nonce}:${asked.to}\n${instructions ?? ""}` : instructions,
      onComplete: () => {
        if (this.pi.over) return;
        this.python.sync();
        connection.answer(id, { entryId: this.newest() });
        over();
      },
      onError: (error: Error) => {
        if (this.pi.over) return; // never act in a session that is ending
        const nothing = /nothing to compact|already compacted/i.test(error.message);
        const cancelled = !mine.problem && /cancelled/i.test(error.message);
        const code = nothing ? CODE.nothingToCompact : cancelled ? CODE.cancelled : CODE.failed;
        connection.refuse(id, code, mine.problem ?? error.message);
        over();
      },
    });
  }

  /** The plugins' answer to `session_before_compact`. */
  async before(event: any): Promise<any> {
    const [nonce, to, instructions] = readMark(event.customInstructions);
    if (this.pi.over) return to ? { cancel: true } : undefined;
    this.seen++;
    this.addressedTo = to;
    this.current ??= { nonce: "" };
    const current = this.current;
    const { firstKeptEntryId, tokensBefore, settings } = event.preparation;
    const asked = {
      reason: event.reason,
      willRetry: event.willRetry,
      customInstructions: instructions,
      addressedTo: to,
      firstKeptEntryId,
      tokensBefore,
      settings,
    };
    const known = !to || nonce === current.nonce;
    const ask = () => this.python.ask("session_before_compact", asked, limits.compaction, event.signal);
    const answer = known ? await ask() : undefined;
    if (event.signal?.aborted) return { cancel: true };
    if (answer?.cancel) {
      if (answer.reason) this.pi.notify(answer.reason, "warning");
      return { cancel: true };
    }
    if (answer?.compaction) return { compaction: answer.compaction };
    if (!to) return undefined; // Pi's own summary, or another extension's
    // Addressed to one plugin: nobody else may do it in its place, and no model.
    const problem = `${to} did not compact${answer?.problem ? ` (${answer.problem})` : ""}`;
    current.problem = problem; // Pi says of it only that it was cancelled
    this.pi.notify(`contexthost: ${problem}; nothing was changed.`, "error");
    return { cancel: true };
  }

  succeeded(event: any): void {
    this.python.tell("session_compact", {
      entryId: this.newest() ?? event.compactionEntry?.id,
      reason: event.reason,
      willRetry: event.willRetry,
      fromExtension: event.fromExtension,
    });
    this.over();
  }

  failed(event: any): void {
    this.python.tell("session_compact_failed", {
      reason: event.reason,
      aborted: event.aborted,
      willRetry: event.willRetry,
      fromExtension: event.fromExtension,
      errorMessage: event.errorMessage,
      addressedTo: this.addressedTo,
    });
    this.over();
  }

  private over(): void {
    this.seen++;
    this.current = undefined;
    this.addressedTo = undefined;
  }

  /** Pi names the compaction by its summary's text; two with the same summary give the older one. */
  private newest(): string | undefined {
    const entries = this.pi.ctx.sessionManager.getEntries();
    for (let at = entries.length - 1; at >= 0; at--) if (entries[at].type === "compaction") return entries[at].id;
    return undefined;
  }
}

/** The mark that addresses a compaction to one plugin: nonce, plugin, and what is left of the instructions. */
function readMark(instructions: string | undefined): [string, string | undefined, string | undefined] {
  if (!instructions?.startsWith(MARK)) return ["", undefined, instructions];
  const end = instructions.indexOf("\n");
  const [nonce, to] = instructions.slice(MARK.length, end < 0 ? undefined : end).split(":");
  return [nonce, to || undefined, (end < 0 ? "" : instructions.slice(end + 1)) || undefined];
}

// Messages on their way into Pi ---------------------------------------------------------------------------------------

/** What Pi is to take as a user's message: expanded as typed text would be, or not; and what it was held as. */
type Message = { text: string; images: any[]; expand?: boolean; held?: string[] };
/** A message on its way into Pi: how often it was tried, how often a try came through `input`, what it was held as. */
type Sending = { text: string; tries: number; passed: number; held: string[]; done?: (problem?: string) => void };
/** One try, until it has come through `input`. */
type Try = { sending?: Sending };
/** What went through `input` and is not in the session yet: since when, and whether it was to go into Pi's queue. */
type Passed = { text: string; at: number; queued: boolean; sending?: Sending };

/** The try that the running code belongs to: its text may have been changed before our own `input` handler sees it. */
const trying = new AsyncLocalStorage<Try>();

/** Sends messages, and looks whether Pi has taken them: a refusal shows nowhere else. */
class Sender {
  private sending: Sending[] = [];
  private passed: Passed[] = [];
  private arriving: { sending: Sending; after: string | null }[] = []; // Pi is appending their entries

  constructor(
    private readonly pi: Pi,
    private readonly python: PythonSide,
    private readonly compactions: Compactions,
  ) {}

  send({ text, images, expand = false, held = [] }: Message, done: (problem?: string) => void): void {
    const sending: Sending = { text, tries: 0, passed: 0, held, done };
    this.sending.push(sending);
    const content = images.length > 0 ? [{ type: "text", text }, ...images] : text;
    const giveUp = () => {
      if (!this.pi.over && sending.passed === 0) this.finish(sending, "Pi did not take it");
    };
    const attempt = () => {
      if (this.pi.over || sending.passed > 0) return;
      if (this.compactions.isGoingOn()) {
        setTimeout(attempt, 100); // Pi refuses prompts meanwhile
        return;
      }
      if (!this.pi.running && this.isStarting(sending)) {
        setTimeout(attempt, 25); // Pi loses the second of two that come before the first one's run
        return;
      }
      sending.tries++;
      const [running, compactions] = [this.pi.running, this.compactions.seen];
      const send = () => this.pi.api.sendUserMessage(content, { deliverAs: "followUp", expandPromptTemplates: expand });
      trying.run({ sending }, send);
      setTimeout(() => {
        // At rest Pi takes all: what does not come then, another extension has dealt with, by a run of its own perhaps.
        const refused = running || this.compactions.seen > compactions;
        if (refused && sending.tries < 3) attempt();
        else setTimeout(giveUp, COMING).unref(); // nor for this: there is nobody to tell then
      }, 1000).unref(); // Pi's end does not wait for it: in print and JSON mode Pi goes when nothing is left to do
    };
    attempt();
  }

  /**
   * Which of our messages has come to `input`; by its text only where Pi has put a try off, and the code is another's.
   */
  comes(text: string): Sending | undefined {
    const current = trying.getStore();
    const own = current?.sending ?? this.sending.find((one) => one.text === text && one.passed < one.tries);
    if (current) current.sending = undefined;
    if (own) own.passed++;
    return own;
  }

  /** A plugin has dealt with it on its way. */
  handled(sending: Sending): void {
    record(this.pi, sending.held, { handled: true });
    this.finish(sending);
  }

  /** An input, ours or another, has gone through, with this text. */
  goesThrough(text: string, queued: boolean, sending: Sending | undefined): void {
    this.passed.push({ text, at: Date.now(), queued, sending });
  }

  /** A message went through before this instance of the extension was made, and is still in Pi's queue. */
  stillQueued({ ids, text, at }: OnTheWay): void {
    this.passed.push({ text, at, queued: false, sending: { text, tries: 1, passed: 1, held: ids } });
  }

  /**
   * A user's message is about to get into the session: one of those that have passed. Pi stamps each just behind
   * `input`; a text that nobody sent was changed there, by a template or another extension.
   */
  arrives(message: any): void {
    const text = textOf(message.content);
    const before = this.passed.filter((one) => one.at <= message.timestamp);
    const found = before.find((one) => one.text === text) ?? before.pop();
    if (!found) return;
    this.passed.splice(this.passed.indexOf(found), 1);
    if (!found.sending) return;
    this.arriving.push({ sending: found.sending, after: this.pi.ctx.sessionManager.getLeafId() });
    setTimeout(() => this.confirm(), 0); // Pi appends the entry when all extensions have seen the message
  }

  /** After a run: what was queued and is neither there nor in the queue any more was taken out of it, by its user. */
  settle(): void {
    this.confirm();
    if (this.pi.ctx.hasPendingMessages()) return;
    for (const one of this.passed.splice(0)) {
      if (!one.queued && Date.now() - one.at < STARTING) this.passed.push(one); // its run has not begun
      else if (one.sending && one.queued) {
        record(this.pi, one.sending.held, { returned: true });
        this.finish(one.sending);
      } else if (one.sending) this.finish(one.sending, "Pi did not take it");
    }
  }

  /** The entries of sent messages have appeared. What the next start could not tell from a text is recorded. */
  private confirm(): void {
    if (this.pi.over) return;
    const manager = this.pi.ctx.sessionManager;
    for (const one of this.arriving.splice(0)) {
      const { sending, after } = one;
      const entries = appended(manager, after, manager.getLeafId());
      const entry = entries?.find((entry) => entry.type === "message" && entry.message.role === "user");
      if (entry) {
        if (textOf(entry.message.content) !== sending.text) record(this.pi, sending.held, { arrived: true });
        this.python.sync();
        this.finish(sending);
      } else if (this.pi.running) {
        this.arriving.push(one);
        setTimeout(() => this.confirm(), 10);
      } else this.finish(sending, "it could not be written");
    }
  }

  /** Whether something else is on its way to a run that has not begun: Pi is neither idle nor ready to queue then. */
  private isStarting(sending: Sending): boolean {
    const others = this.sending.some((other) => other !== sending && other.tries > 0 && other.passed === 0);
    return others || this.pi.inputs.size > 0 || this.pi.isStarting();
  }

  private finish(sending: Sending, problem?: string): void {
    sending.done?.(problem);
    sending.done = undefined;
    const late = !problem && sending.passed < sending.tries; // one more try of it may come
    if (!late) this.sending = this.sending.filter((other) => other !== sending);
  }
}

/** Records that held input is sent, or what became of it. Where that fails (a full disk) the input matters more. */
function record(pi: Pi, ids: string[], what: { arrived?: true; returned?: true; handled?: true }): void {
  if (ids.length === 0) return;
  try {
    pi.api.appendEntry(SENT, { ids, ...what });
  } catch (error) {
    pi.notWritten(error);
  }
}

// Input, and what is held of it ---------------------------------------------------------------------------------------

type HeldInput = { id: string; order: number; text: string; images: any[] };
/** Held input that was sent, as entries tell: its ids, the message's text, and when. */
type OnTheWay = { ids: string[]; text: string; at: number };

/** Asks plugins about each input, keeps what they hold, and sends it when it is released. */
class Inputs {
  private held: HeldInput[] = [];
  private holding = false; // something is held, and what comes now joins it
  private releasing = false; // it is to be sent as soon as Pi can take it
  private order = 0;
  private holdTimer?: ReturnType<typeof setTimeout>;
  private kept = false; // all that was being looked at when the session ended

  constructor(
    private readonly pi: Pi,
    private readonly python: PythonSide,
    private readonly compactions: Compactions,
    private readonly sender: Sender,
  ) {}

  /** At the start: what the session's last end has left over is shown. */
  begin(reason: string): void {
    if (!this.mayHold()) return;
    (globalThis as any)[STRAY] = (text: string, images: number) => {
      if (!this.pi.over) this.offer(text, "contexthost: a message came too late for its session, and was not sent", images);
    };
    const manager = this.pi.ctx.sessionManager;
    const { left, onTheWay } = leftOver(manager.getEntries(), manager.getSessionId());
    if (reason === "reload" && this.pi.ctx.hasPendingMessages()) {
      // Pi still has its queue: what is in there arrives, or is found at the next start.
      for (const sent of onTheWay) {
        this.sender.stillQueued(sent);
        for (const id of sent.ids) left.delete(id);
      }
    }
    this.offerLeft([...left.values()]);
  }

  /** At the end of the session: held input never goes into another one. */
  end(reason: string): void {
    if (reason !== "reload" && this.mayHold()) this.keep();
    clearTimeout(this.holdTimer);
    const toEditor = this.pi.ctx.mode === "tui" && reason !== "quit";
    if (this.held.length > 0 && toEditor) {
      const items = this.takeHeld();
      record(this.pi, items.map((item) => item.id), { returned: true });
      const images = items.flatMap((item) => item.images);
      this.offer(joined(items), "contexthost: a held message was not sent", images.length);
    }
    // The next start finds the rest, what is on its way included, if this session can be opened again.
    if (reason === "reload" || !(toEditor || this.pi.ctx.mode === "rpc") || this.isOnDisk()) return;
    const manager = this.pi.ctx.sessionManager;
    this.offerLeft([...leftOver(manager.getEntries(), manager.getSessionId()).left.values()]);
  }

  /** The answer to `input`. */
  look(event: any): Promise<any> {
    const looked = this.answer(event);
    this.pi.inputs.set(looked, event);
    return looked.finally(() => this.pi.inputs.delete(looked));
  }

  /**
   * An input of a session that has been replaced while an extension before ours looked at it. Pi would run it all the
   * same: it keeps nothing of such a run, asks the model the same again after each tool call, without end, and its
   * `abort` does not reach it.
   */
  stray({ source, text, images }: any): { action: "handled" } {
    if (source !== "extension") (globalThis as any)[STRAY]?.(text, images?.length ?? 0);
    return { action: "handled" };
  }

  /** Sends what is held as soon as Pi can take it. */
  release(): void {
    if (!this.holding && this.pi.inputs.size > 0) {
      // It may be of an input whose answer is on its way, or here and not yet acted upon.
      void Promise.allSettled(this.pi.inputs.keys()).then(() => this.holding && this.release());
      return;
    }
    if (!this.holding || this.releasing || this.pi.over) return;
    this.releasing = true;
    this.sendHeld();
  }

  private async answer(event: any): Promise<any> {
    const own = event.source === "extension" ? this.sender.comes(event.text) : undefined;
    const result = await this.ask(event, own);
    if (result.action === "handled") return result;
    // Pi has looked for a compaction before `input`, and does not again: this run would be in the middle of one.
    while (!this.pi.over && this.compactions.meetsRun()) await sleep(25);
    if (this.kept) return { action: "handled" };
    this.pi.inputPassed();
    this.sender.goesThrough(result.text ?? event.text, event.streamingBehavior !== undefined, own);
    return result;
  }

  private async ask(event: any, own: Sending | undefined): Promise<any> {
    const order = ++this.order;
    if (own && own.passed > 1) return { action: "handled" }; // a second try of what has gone through already
    if (!own && this.holding) return this.hold(order, event.text, event.images);
    const { text, images, source, streamingBehavior } = event;
    const asked = { text, images: images ?? [], source, streamingBehavior };
    await this.python.up();
    const answer = this.python.wants.has("input") ? await this.python.ask("input", asked, limits.answer) : undefined;
    if (answer?.action === "handled") {
      if (own) this.sender.handled(own);
      return { action: "handled" };
    }
    const result = { text: answer?.text ?? text, images: answer?.images ?? images };
    const held = !own && !this.pi.over && this.mayHold() && (answer?.action === "hold" || this.holding);
    if (held) return this.hold(order, result.text, result.images);
    return answer?.text === undefined ? { action: "continue" } : { action: "transform", ...result };
  }

  /** Pi makes a session's file with the first message in it, and none at all with `--no-session`. */
  private isOnDisk(): boolean {
    const manager = this.pi.ctx.sessionManager;
    const talks = (entry: any) => ["user", "assistant"].includes(entry.message?.role);
    return manager.getSessionFile() !== undefined && manager.getEntries().some(talks);
  }

  /** The other modes end after this prompt. */
  private mayHold(): boolean {
    return this.pi.ctx.mode === "tui" || this.pi.ctx.mode === "rpc";
  }

  /**
   * What is still being looked at is held: Pi would run it in the session that it has replaced, and keep nothing of it.
   * After a reload it runs where it belongs.
   */
  private keep(): void {
    this.kept = true;
    try {
      for (const { source, text, images } of this.pi.inputs.values()) {
        if (source !== "extension") this.hold(++this.order, text, images);
      }
    } catch (error) {
      this.pi.notWritten(error);
    }
  }

  private hold(order: number, text: string, images: any[] | undefined): any {
    const item = { id: randomUUID(), order, text, images: images ?? [] };
    const session = this.pi.ctx.sessionManager.getSessionId();
    const sha256 = createHash("sha256").update(text).digest("hex");
    this.pi.api.appendEntry(HELD, { id: item.id, session, text, images: item.images.length, sha256 });
    this.held.push(item);
    if (!this.holding) {
      this.holding = true;
      this.holdTimer = setTimeout(() => {
        this.pi.notify("contexthost: a message was held back too long; it is sent now.", "warning");
        this.release();
      }, (limits.compaction + 10) * 1000);
    }
    this.python.sync();
    return { action: "handled" };
  }

  private sendHeld(): void {
    if (this.pi.over) return;
    if (this.compactions.isGoingOn()) {
      setTimeout(() => this.sendHeld(), 25); // Pi refuses prompts meanwhile
      return;
    }
    const items = this.takeHeld();
    this.holding = this.releasing = false;
    clearTimeout(this.holdTimer);
    const ids = items.map((item) => item.id);
    record(this.pi, ids, {});
    const text = joined(items);
    const images = items.flatMap((item) => item.images);
    // A template or skill is expanded as it would have been; a command never gets here.
    this.sender.send({ text, images, expand: items.length === 1, held: ids }, (problem) => {
      if (!problem) return;
      record(this.pi, ids, { returned: true });
      this.offer(text, `contexthost: a held message could not be sent (${problem})`, images.length);
    });
  }

  private takeHeld(): HeldInput[] {
    const items = this.held.sort((a, b) => a.order - b.order);
    this.held = [];
    return items;
  }

  private offerLeft(items: any[]): void {
    if (items.length === 0) return;
    record(this.pi, items.map((item) => item.id), { returned: true });
    const images = items.reduce((sum, item) => sum + (item.images ?? 0), 0);
    this.offer(joined(items), "contexthost: a message was held back when this session ended, and not sent", images);
  }

  /** Puts text into the editor behind what is there; where there is no editor, shows it. */
  private offer(text: string, what: string, images: number): void {
    const attach = images > 0 ? ` ${images} image${images > 1 ? "s" : ""} must be attached again.` : "";
    if (this.pi.ctx.mode === "tui") {
      const draft = this.pi.ctx.ui.getEditorText();
      this.pi.ctx.ui.setEditorText(draft ? `${draft}\n\n${text}` : text);
      this.pi.notify(`${what}: it is in the editor.${attach}`, "warning");
    } else this.pi.notify(`${what}: ${text}${attach && `\n${attach.trim()}`}`, "warning");
  }
}

/**
 * What was held when the session ended, and never sent; or was sent, and Pi ended before the message itself was there
 * (`onTheWay`): no user's message behind has its text, and no record says that it came in with another one.
 */
function leftOver(entries: any[], session: string): { left: Map<string, any>; onTheWay: OnTheWay[] } {
  const left = new Map<string, any>();
  let onTheWay: OnTheWay[] = [];
  const settled = (ids: string[]) => {
    for (const id of ids) left.delete(id);
    onTheWay = onTheWay.filter((sent) => sent.ids.some((id) => left.has(id)));
  };
  for (const entry of entries) {
    if (onTheWay.length > 0 && entry.type === "message" && entry.message?.role === "user") {
      const text = textOf(entry.message.content);
      settled(onTheWay.find((sent) => sent.text === text)?.ids ?? []);
    }
    if (entry.type !== "custom") continue;
    const data = entry.data ?? {};
    if (entry.customType === HELD && data.session === session) left.set(data.id, data);
    if (entry.customType !== SENT) continue;
    const ids: string[] = Array.isArray(data.ids) ? data.ids : [];
    const items = ids.flatMap((id) => left.get(id) ?? []);
    if (data.returned || data.handled || data.arrived) settled(ids);
    else if (items.length > 0) onTheWay.push({ ids, text: joined(items), at: Date.parse(entry.timestamp) });
  }
  return { left, onTheWay };
}

function joined(items: { text: string }[]): string {
  return items.map((item) => item.text).filter((text) => text !== "").join("\n\n");
}

// Tools and commands --------------------------------------------------------------------------------------------------

/** The plugins' tools and commands, as Pi has them. */
class Tools {
  private inactive: string[] = []; // taken from the model
  private readonly refused: string[] = []; // what Pi did not take, and why

  constructor(private readonly pi: Pi, private readonly python: PythonSide) {
    for (const tool of INSTALLED.tools) this.attempt(tool.name, () => this.registerTool(tool));
    for (const command of INSTALLED.commands) this.attempt(`/${command.name}`, () => this.registerCommand(command));
  }

  /** Tells what Pi did not take; there is nobody to tell before the session starts. */
  begin(): void {
    if (this.refused.length === 0) return;
    const note = `contexthost: Pi does not take ${this.refused.join("; ")}. The rest of the plugins works.`;
    this.pi.tellOnce("refused", note, "warning");
  }

  /** Takes these, or all, from the model. */
  deactivate(names = INSTALLED.tools.map((tool) => tool.name)): void {
    const active: string[] = this.pi.api.getActiveTools();
    const gone = active.filter((name) => names.includes(name));
    if (gone.length === 0) return;
    this.inactive = gone;
    this.pi.api.setActiveTools(active.filter((name) => !gone.includes(name)));
  }

  /** After all: what was taken away when the Python side did not start. */
  reactivate(): void {
    if (this.inactive.length > 0) this.pi.api.setActiveTools([...this.pi.api.getActiveTools(), ...this.inactive]);
    this.inactive = [];
  }

  /** What Pi throws at an extension while it loads it ends Pi. */
  private attempt(what: string, register: () => void): void {
    try {
      register();
    } catch (error) {
      this.refused.push(`${what} (${reasonOf(error)})`);
    }
  }

  private registerTool(tool: { name: string; description: string; parameters: any }): void {
    this.pi.api.registerTool({
      ...tool,
      label: tool.name,
      execute: async (toolCallId: string, given: any, signal: AbortSignal | undefined) => {
        const asked = { name: tool.name, toolCallId, arguments: given };
        const { content, details, isError } = await this.python.call("tool/call", asked, tool.name, signal);
        if (isError) throw new Error(textOf(content));
        return { content, details: details ?? {} };
      },
    });
  }

  private registerCommand(command: { name: string; description: string }): void {
    this.pi.api.registerCommand(command.name, {
      description: command.description,
      handler: async (given: string) => {
        try {
          const answer = await this.python.call("command/run", { name: command.name, arguments: given }, "it");
          if (answer.text) this.pi.notify(answer.text, "info");
        } catch (error) {
          this.pi.notify(`/${command.name}: ${(error as Error).message}`, "error");
        }
      },
    });
  }
}

// The session ---------------------------------------------------------------------------------------------------------

/** The session that this instance of the extension was made for; a switch or a reload makes another instance. */
class Session implements Served {
  private readonly pi: Pi;
  private readonly python: PythonSide;
  private readonly news: News;
  private readonly listening: Listening;
  private readonly compactions: Compactions;
  private readonly sender: Sender;
  private readonly inputs: Inputs;
  private readonly tools: Tools;
  private watched = { headers: false, requests: false }; // of the provider's hooks
  private readonly shown = new Set<string>(); // keys of status lines
  private begun = false;
  private reloaded = false; // the session goes on, with another instance
  private ending?: Promise<void>;
  private missed?: any; // a model that was selected while the Python side was starting with the one before

  constructor(pi: any) {
    this.pi = new Pi(pi);
    this.python = new PythonSide(this.pi, this);
    this.news = new News(this.pi);
    this.listening = new Listening(this.pi, this.python, {
      context: () => this.python.tell("context", {}),
      turn_end: (event) =>
        this.boundary("turn_end", event, {
          turnIndex: event.turnIndex,
          messageEntryId: event.messageEntryId,
          toolResultEntryIds: event.toolResultEntryIds,
        }),
      agent_before_settle: (event) => this.boundary("agent_before_settle", event, {}),
      before_provider_headers: (event) => this.providerHeaders(event),
      before_provider_request: (event) => this.providerRequest(event),
    });
    this.compactions = new Compactions(this.pi, this.python);
    this.sender = new Sender(this.pi, this.python, this.compactions);
    this.inputs = new Inputs(this.pi, this.python, this.compactions, this.sender);
    this.tools = new Tools(this.pi, this.python);

    this.pi.on("session_start", (event: any, ctx: any) => this.begin(event, ctx));
    pi.on("session_shutdown", (event: any) => (this.ending ??= this.end(event))); // two reloads at once wait for one end
    pi.on("input", (event: any) => {
      if (!this.pi.over) return this.inputs.look(event);
      return this.reloaded ? undefined : this.inputs.stray(event);
    });
    // Such a run that has begun all the same (an extension behind ours has looked at its input) ends with this.
    pi.on("tool_call", () => {
      if (!this.pi.over || this.reloaded) return undefined;
      return { block: true, reason: "The session has been replaced.", terminate: true };
    });
    pi.on("session_before_compact", (event: any) => this.compactions.before(event));
    this.pi.on("session_compact", (event: any) => {
      this.listening.listen(); // after a run a boundary follows, and no message before it
      this.compactions.succeeded(event);
    });
    this.pi.on("session_compact_failed", (event: any) => this.compactions.failed(event));
    this.pi.on("agent_start", () => {
      this.pi.runStarted();
      this.python.tell("agent_start", this.listening.runStarts());
    });
    this.pi.on("agent_settled", (event: any) => {
      this.pi.runSettled();
      this.python.tell("agent_settled", { aborted: event.aborted });
      this.sender.settle();
    });
    this.pi.on("session_before_switch", (event: any) =>
      this.askCancel("session_before_switch", { reason: event.reason, targetSessionFile: event.targetSessionFile }),
    );
    this.pi.on("session_before_fork", (event: any) =>
      this.askCancel("session_before_fork", { entryId: event.entryId, position: event.position }),
    );
    this.pi.on("session_tree", (event: any) => {
      this.news.leafMoved();
      this.python.tell("session_tree", {
        newLeafId: event.newLeafId,
        oldLeafId: event.oldLeafId,
        summaryEntryId: event.summaryEntry?.id,
        fromExtension: event.fromExtension,
      });
    });
    this.pi.on("message_end", (event: any) => {
      this.listening.listen(event.message);
      if (event.message.role === "user") this.sender.arrives(event.message);
    });
    this.pi.on("agent_end", () => this.listening.listen());
    this.pi.on("model_select", (event: any) => this.modelSelected(event));
  }

  private begin(event: any, ctx: any): void {
    if (this.begun) return; // of two reloads at once Pi starts the second one's instance twice
    this.begun = true;
    this.pi.ctx = ctx;
    this.tools.begin();
    this.inputs.begin(event.reason);
    this.python.begin({ reason: event.reason, previousSessionFile: event.previousSessionFile });
  }

  private async end(event: any): Promise<void> {
    if (this.begun) this.inputs.end(event.reason);
    this.reloaded = event.reason === "reload";
    this.pi.end();
    if (!this.begun) return;
    const last = { reason: event.reason, targetSessionFile: event.targetSessionFile };
    await this.python.end({ sync: this.news.take(), event: last });
  }

  private modelSelected(event: any): void {
    this.missed = this.python.ready ? undefined : event;
    this.python.tell("model_select", {
      model: describeModel(event.model),
      previousModel: describeModel(event.previousModel),
      source: event.source,
      ...this.listening.selected(event.model),
    });
  }

  // What the Python side needs

  describe(reason: any, withEntries: boolean): any {
    const { mode, hasUI, sessionManager: manager } = this.pi.ctx;
    const all = this.news.all();
    this.missed = undefined;
    const conditions = this.listening.describe();
    return {
      sync: withEntries ? all : undefined,
      state: this.state(),
      event: {
        ...reason,
        mode,
        hasUI,
        sessionId: manager.getSessionId(),
        header: manager.getHeader(),
        file: manager.getSessionFile(),
        count: all.entries.length,
        lastId: all.entries[all.entries.length - 1]?.id ?? null,
        leaf: all.leaf,
        ...conditions,
      },
    };
  }

  params(event: any): any {
    return { sync: this.news.take(), state: this.state(), event };
  }

  started(unavailableTools: string[]): void {
    this.listening.listen();
    this.tools.reactivate();
    this.tools.deactivate(unavailableTools);
    this.python.sync();
    if (this.missed) this.modelSelected(this.missed);
  }

  stopped(): void {
    this.listening.forget();
    // Never there: its tools go, too. After it has run they stay, or else the prompt cache would be lost.
    if (!this.python.hasRun) this.tools.deactivate();
    for (const key of this.shown) this.pi.ctx.ui.setStatus(key, undefined);
    this.shown.clear();
    this.inputs.release();
  }

  receive(connection: Connection, { method, event, id, signal }: Received): void {
    const ctx = this.pi.ctx;
    const answer = (value: any) => id !== undefined && connection.answer(id, value);
    switch (method) {
      case "ui/notify":
        return this.pi.notify(event.message, event.level);
      case "ui/setStatus":
        if (typeof event.text === "string") this.shown.add(event.key);
        else this.shown.delete(event.key);
        return ctx.ui.setStatus(event.key, event.text ?? undefined);
      case "ui/setEditorText":
        return ctx.ui.setEditorText(event.text);
      case "ui/getEditorText":
        answer(ctx.ui.getEditorText());
        return;
      case "ui/confirm": {
        const options = { timeout: Math.min(event.seconds * 1000, LONGEST), signal };
        ctx.ui.confirm(event.title, event.message, options).then(answer, () => answer(false));
        return;
      }
      case "model/credential":
        // Pi's own key or token of a provider, for a plugin that talks to it; it goes no further than this pipe.
        ctx.modelRegistry.getApiKeyForProvider(event.provider).then(
          (key: string | undefined) => answer({ key: key ?? null }),
          () => answer({ key: null }),
        );
        return;
      case "model/headers":
        // Those that the user set up in models.json: Pi resolves them for each request and puts them into no model.
        ctx.modelRegistry.getApiKeyAndHeaders(ctx.model).then(
          (found: any) => answer({ headers: found.headers ?? {} }),
          () => answer({ headers: {} }),
        );
        return;
      case "boundary/watch":
        return this.listening.watch(event);
      case "provider/watch":
        this.watched = { headers: event.headers, requests: event.requests };
        return;
      case "session/compact":
        this.compactions.start(connection, id!, event, signal).catch((error) =>
          connection.refuse(id!, CODE.failed, String(error)),
        );
        return;
      case "session/send":
        return this.sender.send({ text: event.text, images: event.images }, (problem) =>
          problem ? connection.refuse(id!, CODE.failed, problem) : connection.answer(id!, {}),
        );
      case "session/appendEntry":
        this.pi.api.appendEntry(event.customType, event.data);
        this.python.sync();
        answer({});
        return;
      case "session/abort":
        return ctx.abort();
      case "session/resync":
        this.news.again();
        return this.python.sync();
      case "held/release":
        return this.inputs.release();
      default:
        if (id !== undefined) connection.refuse(id, CODE.methodNotFound, `this extension has no ${method}`);
    }
  }

  private state(): any {
    const ctx = this.pi.ctx;
    return { idle: ctx.isIdle(), pending: ctx.hasPendingMessages(), model: this.listening.changedModel() };
  }

  // Hooks that are answered

  private async askCancel(hook: string, event: any): Promise<any> {
    const answer = await this.python.ask(hook, event, limits.answer);
    if (!answer?.cancel) return undefined;
    if (answer.reason) this.pi.notify(answer.reason, "warning");
    return { cancel: true };
  }

  /** Until the run is aborted. */
  private askInRun(hook: string, event: any): Promise<any> {
    return this.python.ask(hook, event, limits.answer, this.pi.ctx.signal);
  }

  private async boundary(hook: string, event: any, more: any): Promise<any> {
    const asked = { ...more, outcome: event.outcome, entries: event.entries, continue: event.continue };
    const answer = await this.askInRun(hook, asked);
    if (!answer?.entries) return undefined;
    const goOn = event.continue || answer.continue;
    if (answer.entries.length === 0 && goOn === event.continue) return undefined;
    return { entries: [...event.entries, ...answer.entries], continue: goOn };
  }

  private async providerHeaders(event: any): Promise<void> {
    if (!this.watched.headers) return;
    const answer = await this.askInRun("before_provider_headers", { headers: event.headers });
    for (const [name, value] of Object.entries(answer?.headers ?? {})) {
      for (const known of Object.keys(event.headers)) {
        if (known !== name && known.toLowerCase() === name.toLowerCase()) delete event.headers[known];
      }
      event.headers[name] = value;
    }
  }

  private async providerRequest(event: any): Promise<any> {
    if (!this.watched.requests) return undefined;
    const answer = await this.askInRun("before_provider_request", { payload: event.payload });
    return answer?.payload;
  }
}

export default function contexthost(pi: any): void {
  if (INSTALLED.command.length > 0) new Session(pi);
}
