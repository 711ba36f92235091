/**
 * contexthost in Pi: written by `contexthost pi install`, removed by `contexthost pi uninstall`.
 *
 * This file starts a Python process beside Pi, tells it what happens in the session, and hands Pi what the installed
 * contexthost plugins answer. It decides nothing itself, with one exception: input that a plugin holds back is kept
 * here, so that it survives the Python process. Whatever goes wrong over there, Pi goes on as if this file were not
 * here. The protocol is described in contexthost's docs/pi-bridge.md.
 */

import { AsyncLocalStorage } from "node:async_hooks";
import { type ChildProcess, spawn } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";

/** Filled in by `contexthost pi install`: what to start, and what the plugins register. */
const INSTALLED = {
  /*@installed*/
  version: "",
  digest: "",
  command: [] as string[],
  tools: [] as { name: string; description: string; parameters: any }[],
  commands: [] as { name: string; description: string }[],
  /*@end*/
};

const PROTOCOL = 1;

/** Seconds. The Python side sends its own for most of them when it has started. */
const limits = { start: 10, answer: 2, compaction: 120, tool: 600, heartbeat: 5, end: 2 };

/** Milliseconds from some moment on; the time of day may be set back. */
const now = () => performance.now();

const MISSED_HEARTBEATS = 3;
const STARTING = 5000; // milliseconds from an input to its run, at most: it may fail before it starts
const BACK_OFF = { first: 1000, factor: 4, longest: 300_000, healthyAfter: 60_000 }; // milliseconds
const HELD = "contexthost:held";
const SENT = "contexthost:sent";
const MARK = "contexthost:addressed:";
const NEVER = Number.MAX_SAFE_INTEGER; // tokens: no context has so many

const CODE = { methodNotFound: -32601, versionMismatch: -32001, unsupported: -32002, nothingToCompact: -32003, failed: -32004, cancelled: -32800 };

type Answer = { ok: true; value: any } | { ok: false; why: "late" | "gone" | "aborted" | "refused"; code?: number; message: string };

// The connection ------------------------------------------------------------------------------------------------------

/** One Python process and the JSON-RPC connection to it: one message a line. */
class Connection {
  alive = true;
  serving = false; // a session, at whose end plugins have something to do
  readonly startedAt = now();
  private readonly child: ChildProcess;
  private readonly waiting = new Map<number, { done: (answer: Answer) => void; extend: (seconds: number) => void }>();
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
    private readonly receive: (method: string, event: any, id?: number) => void,
    private readonly gone: (why: string) => void,
  ) {
    this.child = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "pipe"] });
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
    this.write({ jsonrpc: "2.0", id, result });
  }

  refuse(id: number, code: number, message: string): void {
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
      const line = Buffer.concat([...this.parts, chunk.subarray(start, at)]).toString("utf8");
      this.parts = [];
      start = at + 1;
      this.take(line);
    }
    if (start < chunk.length) this.parts.push(chunk.subarray(start));
  }

  private take(line: string): void {
    let message: any;
    try {
      message = JSON.parse(line);
    } catch {
      return; // not ours: the Python side keeps standard output for the protocol alone
    }
    if (typeof message.method === "string") {
      const event = message.params?.event ?? {};
      if (message.method === "deadline/extend") this.waiting.get(event.id)?.extend(event.seconds);
      else this.receive(message.method, event, message.id);
      return;
    }
    const waiting = this.waiting.get(message.id);
    if (!waiting) return;
    if (message.error) {
      waiting.done({ ok: false, why: "refused", code: message.error.code, message: String(message.error.message) });
    } else waiting.done({ ok: true, value: message.result });
  }

  private end(why: string): void {
    const wasAlive = this.alive;
    this.alive = false;
    process.off("exit", this.killAtExit);
    for (const waiting of [...this.waiting.values()]) waiting.done({ ok: false, why: "gone", message: why });
    if (wasAlive) this.gone(why);
  }
}

// One session ---------------------------------------------------------------------------------------------------------

type HeldInput = { id: string; order: number; text: string; images: any[] };
/** A message on its way into Pi: how often it was tried, how often a try came through `input`, what it was held as. */
type Sending = { text: string; tries: number; passed: number; held: string[]; done?: (problem?: string) => void };
/** One try, until it has come through `input`. */
type Try = { sending?: Sending };
/** What went through `input` and is not in the session yet: since when, and whether it was to go into Pi's queue. */
type Passed = { text: string; at: number; queued: boolean; sending?: Sending };

/** The try that the running code belongs to: its text may have been changed before our own `input` handler sees it. */
const trying = new AsyncLocalStorage<Try>();

/** A compaction that goes on: its mark, whom it is addressed to, and why that plugin did not make it. */
type Compacting = { nonce: string; to?: string; problem?: string };

/** The session that this instance of the extension was made for; a switch or a reload makes another instance. */
class Session {
  private ctx: any;
  private connection?: Connection;
  private ready = false;
  private firstStart?: Promise<void>;
  private lastStart?: Promise<void>; // over after `limits.start` in any case
  private problem = "it has not been started"; // why the Python side is not there
  private broken = false; // cannot work before something is installed anew
  private over = false;
  private ending?: Promise<void>;
  private replaced = false; // or quit: inputs that are still being looked at would run where nobody sees it
  private running = false; // between agent_start and agent_settled
  private startingSince = -Infinity; // an input has gone through, and its run has not started yet
  private readonly inputs = new Map<Promise<any>, any>(); // being looked at, and their events
  private reason: any = { reason: "startup" };
  private backOff = BACK_OFF.first;
  private nextStart = 0;
  private heartbeat?: ReturnType<typeof setInterval>;
  private beating = false;
  private readonly told = new Set<string>();
  private wants = new Set<string>();
  private readonly listening = new Map<string, (() => void) | undefined>(); // what is registered → what takes it away
  private boundaries: Record<string, number> = {}; // from how many tokens of context on one is wanted; default: always
  private asked = 0; // counts what may change these numbers: those that Python found before it hold no longer
  private settingsTold = ""; // those of compactions, with which Python found them
  private coming: any; // the message that ended last; the session may not have it yet
  private model: any; // as the Python side knows it
  private changedModel?: any; // the same one with other limits, until Python is told
  private selected?: any; // a model, while the Python side was starting with the one before
  private inactive: string[] = []; // tools that were taken from the model
  private watch = { headers: false, requests: false };
  // How far the Python side knows the session.
  private sent = 0;
  private sentLeaf: string | null = null;
  private leafMoved = false; // other than by entries that were appended
  // Held input.
  private held: HeldInput[] = [];
  private holding = false;
  private releasing = false;
  private order = 0;
  private holdTimer?: ReturnType<typeof setTimeout>;
  private sending: Sending[] = [];
  private passed: Passed[] = [];
  private arriving: { sending: Sending; after: string | null }[] = []; // Pi is appending their entries
  // The compaction that is going on, as far as this extension knows.
  private compacting?: Compacting;
  private addressedTo?: string;

  constructor(private readonly pi: any) {
    for (const tool of INSTALLED.tools) this.registerTool(tool);
    for (const command of INSTALLED.commands) this.registerCommand(command);
    this.on("session_start", (event: any, ctx: any) => this.begin(event, ctx));
    pi.on("session_shutdown", (event: any) => (this.ending ??= this.end(event))); // two reloads at once wait for one end
    this.on("input", (event: any) => this.track(event));
    pi.on("session_before_compact", (event: any) => this.beforeCompact(event));
    this.on("session_compact", (event: any) => this.compacted(event));
    this.on("session_compact_failed", (event: any) => this.compactFailed(event));
    this.on("agent_start", () => {
      this.running = true;
      this.startingSince = -Infinity;
      this.lookAtModel();
      const compaction = this.compactionSettings(this.ctx.model);
      if (JSON.stringify(compaction) !== this.settingsTold) this.askAnew(compaction);
      this.tell("agent_start", { compaction, asked: this.asked });
    });
    this.on("agent_settled", (event: any) => {
      this.running = false;
      this.tell("agent_settled", { aborted: event.aborted });
      this.settleSending();
    });
    this.on("session_before_switch", (event: any) =>
      this.askCancel("session_before_switch", { reason: event.reason, targetSessionFile: event.targetSessionFile }),
    );
    this.on("session_before_fork", (event: any) =>
      this.askCancel("session_before_fork", { entryId: event.entryId, position: event.position }),
    );
    this.on("session_tree", (event: any) => {
      this.leafMoved = true;
      this.tell("session_tree", {
        newLeafId: event.newLeafId,
        oldLeafId: event.oldLeafId,
        summaryEntryId: event.summaryEntry?.id,
        fromExtension: event.fromExtension,
      });
    });
    this.on("message_end", (event: any) => {
      this.listen(event.message);
      if (event.message.role === "user") this.arrives(event.message);
    });
    this.on("agent_end", () => this.listen());
    this.on("model_select", (event: any) => this.modelSelected(event));
  }

  /** Pi may go on with a run of a session that it has replaced, and whose context must not be used any more. */
  private on(name: string, handler: (event: any, ctx: any) => any): any {
    return this.pi.on(name, (event: any, ctx: any) => (this.over ? undefined : handler(event, ctx)));
  }

  private modelSelected(event: any): void {
    this.selected = this.ready ? undefined : event;
    this.knows(event.model);
    const compaction = this.compactionSettings(event.model);
    this.askAnew(compaction);
    this.tell("model_select", {
      model: describeModel(event.model),
      previousModel: describeModel(event.previousModel),
      source: event.source,
      compaction,
      asked: this.asked,
    });
  }

  /** Python has the model as it is now. */
  private knows(model: any): void {
    this.model = model;
    this.changedModel = undefined;
  }

  /** Another extension may register the model in use anew, with another window: Pi goes over to it and tells nobody. */
  private lookAtModel(): void {
    const [before, model] = [this.model, this.ctx.model];
    if (!this.ready || model === before) return;
    this.model = model;
    const described = describeModel(model);
    if (JSON.stringify(described) === JSON.stringify(describeModel(before))) return;
    this.changedModel = described;
    this.askAnew(this.compactionSettings(model));
  }

  /** Pi's own, as it would read them now for this model; what is left out is as Pi has it by default. */
  private compactionSettings(model: any): any {
    const settings = this.pi.getSettings().compaction ?? {};
    const own = model ? settings.modelOverrides?.[`${model.provider}/${model.id}`] : undefined;
    return {
      enabled: settings.enabled,
      reserveTokens: own?.reserveTokens ?? settings.reserveTokens,
      keepRecentTokens: own?.keepRecentTokens ?? settings.keepRecentTokens,
    };
  }

  private readonly wantable: Record<string, (event: any) => any> = {
    context: () => this.tell("context", {}),
    turn_end: (event) =>
      this.boundary("turn_end", event, {
        turnIndex: event.turnIndex,
        messageEntryId: event.messageEntryId,
        toolResultEntryIds: event.toolResultEntryIds,
      }),
    agent_before_settle: (event) => this.boundary("agent_before_settle", event, {}),
    before_provider_headers: (event) => this.providerHeaders(event),
    before_provider_request: (event) => this.providerRequest(event),
  };

  /**
   * Handlers that make Pi prepare something for them are registered only while a plugin wants the hook: for whoever
   * listens to a boundary Pi builds the whole context anew, twice and more. `coming` is about to get into the session;
   * while other extensions look at it, it is neither there nor may it be forgotten.
   */
  private listen(coming?: any): void {
    if (this.over) return;
    this.lookAtModel();
    if (coming) this.coming = coming;
    const measure = () => Math.max(this.contextAtMost(this.coming), coming ? 0 : this.contextAtMost());
    let size: number | undefined;
    for (const [name, handler] of Object.entries(this.wantable)) {
      const from = this.boundaries[name] ?? 0;
      const wanted = this.wants.has(name) && (from === 0 || (from < NEVER && (size ??= measure()) >= from));
      if (wanted && !this.listening.has(name)) this.listening.set(name, this.on(name, handler));
      const stop = wanted ? undefined : this.listening.get(name);
      if (!stop) continue;
      stop();
      this.listening.delete(name);
    }
  }

  /** The numbers that plugins named may hold no longer: every boundary is wanted until Python has found new ones. */
  private askAnew(compaction: any): void {
    this.settingsTold = JSON.stringify(compaction);
    this.asked++;
    this.boundaries = {};
    this.listen();
  }

  /** The tokens of the context by the provider's last word, and more than what came since has; Infinity: unknown. */
  private contextAtMost(coming?: any): number {
    const enough = Math.max(0, ...Object.values(this.boundaries).filter((from) => from < NEVER));
    let since = 0;
    const manager = this.ctx.sessionManager;
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

  // Start and end -----------------------------------------------------------------------------------------------------

  private begin(event: any, ctx: any): void {
    if (this.firstStart) return; // of two reloads at once Pi starts the second one's instance twice
    this.ctx = ctx;
    this.reason = { reason: event.reason, previousSessionFile: event.previousSessionFile };
    this.giveBackLeftOver();
    // Not awaited: Pi starts meanwhile, and the first input waits for it.
    this.firstStart = this.lastStart = this.start();
  }

  private async start(): Promise<void> {
    let connection: Connection;
    try {
      connection = new Connection(
        INSTALLED.command,
        (method, message, id) => this.receive(connection, method, message, id),
        (why) => this.gone(why, connection),
      );
    } catch (error) {
      this.gone(`it cannot be started: ${error instanceof Error ? error.message : error}`, undefined);
      return;
    }
    this.connection = connection;
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
    if (this.over) return;
    let started = await connection.request("session/start", this.describeSession(false), left());
    if (started.ok && started.value.need === "entries" && !this.over) {
      started = await connection.request("session/start", this.describeSession(true), left());
    }
    if (!started.ok) return this.startFailed(connection, started);
    if (this.over) return;
    this.ready = connection.serving = true;
    this.wants = new Set(started.value.wants);
    this.listen();
    this.reactivate();
    this.deactivate(started.value.unavailableTools);
    if (greeting.value.manifest !== INSTALLED.digest) {
      this.tellOnce("manifest", "contexthost: plugins have changed; run `contexthost pi install` and /reload.", "warning");
    }
    for (const warning of greeting.value.warnings) this.tellOnce(warning, `contexthost: ${warning}`, "warning");
    this.heartbeat = setInterval(() => void this.beat(connection), limits.heartbeat * 1000);
    this.heartbeat.unref?.();
    this.sync();
    if (this.selected) this.modelSelected(this.selected);
  }

  private startFailed(connection: Connection, answer: Answer & { ok: false }): void {
    if (this.over || answer.why === "gone") return; // `gone` has told it
    if (answer.code === CODE.versionMismatch) {
      this.broken = true;
      this.tellOnce("version", `contexthost: ${answer.message}. Pi goes on without it.`, "error");
    }
    this.gone(answer.message, connection);
    connection.kill();
  }

  private describeSession(withEntries: boolean): any {
    const manager = this.ctx.sessionManager;
    const entries = manager.getEntries();
    const compaction = this.compactionSettings(this.ctx.model);
    this.settingsTold = JSON.stringify(compaction);
    this.selected = undefined;
    this.knows(this.ctx.model);
    this.sent = entries.length;
    this.sentLeaf = manager.getLeafId();
    const params: any = {
      state: this.state(),
      event: {
        ...this.reason,
        mode: this.ctx.mode,
        hasUI: this.ctx.hasUI,
        sessionId: manager.getSessionId(),
        header: manager.getHeader(),
        file: manager.getSessionFile(),
        count: entries.length,
        lastId: entries[entries.length - 1]?.id ?? null,
        leaf: this.sentLeaf,
        model: describeModel(this.ctx.model),
        compaction,
        asked: this.asked,
      },
    };
    if (withEntries) params.sync = { from: 0, entries, leaf: this.sentLeaf };
    return params;
  }

  /** What is left of the Python side after it went away: nothing that Pi could notice. */
  private gone(why: string, connection: Connection | undefined): void {
    if (connection !== this.connection) return;
    this.problem = why;
    this.boundaries = {};
    const lived = this.connection ? now() - this.connection.startedAt : 0;
    const neverRan = !this.ready;
    this.ready = false;
    this.connection = undefined;
    clearInterval(this.heartbeat);
    if (this.over) return;
    // Never there: its tools go, too. After it has run they stay, or else the prompt cache would be lost.
    if (neverRan && this.wants.size === 0) this.deactivate(INSTALLED.tools.map((tool) => tool.name));
    if (this.broken) return;
    if (lived > BACK_OFF.healthyAfter) this.backOff = BACK_OFF.first;
    this.nextStart = now() + this.backOff;
    this.backOff = Math.min(this.backOff * BACK_OFF.factor, BACK_OFF.longest);
    this.tellOnce("gone", `contexthost: the Python side has stopped (${why}). Pi goes on without it; it is started again.`, "warning");
    if (this.holding) this.release();
  }

  private async beat(connection: Connection): Promise<void> {
    if (!connection.alive || this.over || this.beating) return;
    this.beating = true;
    for (const seconds of [limits.heartbeat * (MISSED_HEARTBEATS - 1), limits.heartbeat]) {
      const answer = await connection.request("ping", {}, seconds);
      if (answer.ok || answer.why !== "late") break;
      // Asked twice: after a machine has slept the first answer is late in any case.
      if (seconds === limits.heartbeat) connection.kill(); // its exit tells the rest
    }
    this.beating = false;
  }

  /** Whether the Python side can be asked; starts it again when its time has come. */
  private async up(): Promise<boolean> {
    if (this.over || this.broken) return false;
    if (!this.ready && this.firstStart) await this.firstStart;
    this.revive();
    return this.ready && !this.over;
  }

  private revive(): void {
    if (this.over || this.broken || this.connection || !this.firstStart || now() < this.nextStart) return;
    this.reason = { reason: "reload" };
    this.lastStart = this.start(); // no event waits: Pi goes on without it until it is there
  }

  /**
   * For a tool or a command, which is nothing without the Python side: somebody asks for it now, so that it is started
   * before its time, and a start that is under way is waited for. Throws when it is not there then.
   */
  private async reach(signal?: AbortSignal): Promise<Connection> {
    if (!this.over && !this.broken) {
      this.nextStart = 0;
      this.revive();
      const aborted = new Promise<void>((resolve) => signal?.addEventListener("abort", () => resolve(), { once: true }));
      await Promise.race([this.lastStart, aborted]);
    }
    if (signal?.aborted) throw new Error("aborted");
    if (!this.ready || this.over || !this.connection) throw new Error(`contexthost is not running (${this.problem})`);
    return this.connection;
  }

  private async end(event: any): Promise<void> {
    this.keepInputs(event.reason);
    this.over = true;
    clearInterval(this.heartbeat);
    clearTimeout(this.holdTimer);
    this.giveBack(event.reason);
    const connection = this.connection;
    if (!connection) return;
    const last = { reason: event.reason, targetSessionFile: event.targetSessionFile };
    await connection.request("session/end", { sync: this.news(), event: last }, limits.end);
    await connection.stop();
  }

  // What Python knows ---------------------------------------------------------------------------------------------------

  private state(): any {
    this.lookAtModel();
    const model = this.changedModel;
    this.changedModel = undefined;
    return { idle: this.ctx.isIdle(), pending: this.ctx.hasPendingMessages(), model };
  }

  /** The entries since the last message, and where the branch ends. */
  private news(): any {
    const manager = this.ctx.sessionManager;
    const leaf: string | null = manager.getLeafId();
    const fresh = this.leafMoved ? undefined : this.between(this.sentLeaf, leaf);
    if (fresh?.length === 0) return undefined;
    const from = this.sent;
    const entries = fresh ?? manager.getEntries().slice(from);
    this.leafMoved = false;
    this.sent = from + entries.length;
    this.sentLeaf = leaf;
    return { from, leaf, entries };
  }

  /** What was appended to the branch: every entry becomes the leaf, so all lie between the old leaf and the new. */
  private between(oldLeaf: string | null, leaf: string | null): any[] | undefined {
    const fresh: any[] = [];
    for (let at = leaf; at !== oldLeaf; at = fresh[fresh.length - 1].parentId ?? null) {
      const entry = at === null || fresh.length > 1000 ? undefined : this.ctx.sessionManager.getEntry(at);
      if (!entry) return undefined; // not on the same branch: all entries must be looked at
      fresh.push(entry);
    }
    return fresh.reverse();
  }

  private params(event: any): any {
    return { sync: this.news(), state: this.state(), event };
  }

  private sync(): void {
    if (this.ready && !this.over) this.connection?.notify("sync", this.params({}));
  }

  /** Tells of something that needs no answer. */
  private tell(hook: string, event: any): void {
    this.revive();
    if (this.ready && !this.over) this.connection?.notify(`hook/${hook}`, this.params(event));
  }

  /** Asks the plugins; undefined when there is nobody to ask, or no answer in time. */
  private async ask(hook: string, event: () => any, seconds: number, signal?: AbortSignal): Promise<any> {
    if (!(await this.up())) return undefined;
    const answer = await this.connection!.request(`hook/${hook}`, this.params(event()), seconds, signal);
    if (answer.ok) return answer.value;
    if (answer.why === "late") {
      this.tellOnce("late", `contexthost: ${answer.message}. Pi goes on without it.`, "warning");
    }
    return undefined;
  }

  private async askCancel(hook: string, event: any): Promise<any> {
    const answer = await this.ask(hook, () => event, limits.answer);
    if (!answer?.cancel) return undefined;
    if (answer.reason) this.notify(answer.reason, "warning");
    return { cancel: true };
  }

  // Hooks that are answered ---------------------------------------------------------------------------------------------

  private async boundary(hook: string, event: any, more: any): Promise<any> {
    const asked = { ...more, outcome: event.outcome, entries: event.entries, continue: event.continue };
    const answer = await this.ask(hook, () => asked, limits.answer, this.ctx.signal);
    if (!answer?.entries) return undefined;
    const goOn = event.continue || answer.continue;
    if (answer.entries.length === 0 && goOn === event.continue) return undefined;
    return { entries: [...event.entries, ...answer.entries], continue: goOn };
  }

  private async providerHeaders(event: any): Promise<void> {
    if (!this.watch.headers) return;
    const answer = await this.ask("before_provider_headers", () => ({ headers: event.headers }), limits.answer, this.ctx.signal);
    for (const [name, value] of Object.entries(answer?.headers ?? {})) {
      for (const known of Object.keys(event.headers)) {
        if (known !== name && known.toLowerCase() === name.toLowerCase()) delete event.headers[known];
      }
      event.headers[name] = value;
    }
  }

  private async providerRequest(event: any): Promise<any> {
    if (!this.watch.requests) return undefined;
    const answer = await this.ask("before_provider_request", () => ({ payload: event.payload }), limits.answer, this.ctx.signal);
    return answer?.payload;
  }

  // Compaction ----------------------------------------------------------------------------------------------------------

  private async beforeCompact(event: any): Promise<any> {
    const [nonce, to, instructions] = readMark(event.customInstructions);
    if (this.over) return to ? { cancel: true } : undefined;
    this.addressedTo = to;
    if (!this.compacting) this.compacting = { nonce: "", to };
    const known = !to || nonce === this.compacting.nonce;
    const preparation = event.preparation;
    const asked = () => ({
      reason: event.reason,
      willRetry: event.willRetry,
      customInstructions: instructions,
      addressedTo: to,
      firstKeptEntryId: preparation.firstKeptEntryId,
      tokensBefore: preparation.tokensBefore,
      settings: preparation.settings,
    });
    const answer = known ? await this.ask("session_before_compact", asked, limits.compaction, event.signal) : undefined;
    if (event.signal?.aborted) return { cancel: true };
    if (answer?.cancel) {
      if (answer.reason) this.notify(answer.reason, "warning");
      return { cancel: true };
    }
    if (answer?.compaction) return { compaction: answer.compaction };
    if (!to) return undefined; // Pi's own summary, or another extension's
    // Addressed to one plugin: nobody else may do it in its place, and no model.
    const problem = `${to} did not compact${answer?.problem ? ` (${answer.problem})` : ""}`;
    this.compacting.problem = problem; // Pi says of it only that it was cancelled
    this.notify(`contexthost: ${problem}; nothing was changed.`, "error");
    return { cancel: true };
  }

  private compacted(event: any): void {
    this.listen(); // after a run a boundary follows, and no message before it
    const entryId = this.newestCompaction() ?? event.compactionEntry?.id;
    this.tell("session_compact", {
      entryId,
      reason: event.reason,
      willRetry: event.willRetry,
      fromExtension: event.fromExtension,
    });
    this.compactionOver();
  }

  private compactFailed(event: any): void {
    this.tell("session_compact_failed", {
      reason: event.reason,
      aborted: event.aborted,
      willRetry: event.willRetry,
      fromExtension: event.fromExtension,
      errorMessage: event.errorMessage,
      addressedTo: this.addressedTo,
    });
    this.compactionOver();
  }

  /** Also while Pi tells of the end: it counts as compacting until all handlers are done. */
  private isCompacting(): boolean {
    return this.compacting !== undefined || (!this.running && !this.ctx.isIdle());
  }

  private compactionOver(): void {
    this.compacting = undefined;
    this.addressedTo = undefined;
    this.sendHeldSoon();
  }

  /** Pi names the compaction by its summary's text; two with the same summary give the older one. */
  private newestCompaction(): string | undefined {
    const entries = this.ctx.sessionManager.getEntries();
    for (let at = entries.length - 1; at >= 0; at--) if (entries[at].type === "compaction") return entries[at].id;
    return undefined;
  }

  private async compact(connection: Connection, id: number, asked: any): Promise<void> {
    // An input that is being looked at may start a run, which a compaction must not meet half-way, or be held for it.
    while (this.inputs.size > 0) await Promise.allSettled(this.inputs.keys());
    if (this.over || !connection.alive) return; // nobody wants it any more
    // From here to `ctx.compact` nothing is awaited: what is looked at is what the compaction meets.
    const busy = !this.ctx.isIdle() || now() - this.startingSince < STARTING;
    if (this.isCompacting()) {
      connection.refuse(id, CODE.unsupported, "a compaction is going on already");
      return;
    }
    if (busy && asked.onlyIfIdle) {
      connection.refuse(id, CODE.unsupported, "Pi is not idle");
      return;
    }
    const nonce = randomUUID();
    const mine: Compacting = { nonce, to: asked.to ?? undefined };
    this.compacting = mine;
    const instructions = asked.instructions ?? undefined;
    const over = () => {
      if (this.compacting === mine) this.compacting = undefined;
      this.sendHeldSoon();
    };
    this.ctx.compact({
      customInstructions: asked.to ? `${MARK}${nonce}:${asked.to}\n${instructions ?? ""}` : instructions,
      onComplete: () => {
        if (this.over) return;
        this.sync();
        connection.answer(id, { entryId: this.newestCompaction() });
        over();
      },
      onError: (error: Error) => {
        if (this.over) return; // never act in a session that is ending
        const nothing = /nothing to compact|already compacted/i.test(error.message);
        const cancelled = !mine.problem && /cancelled/i.test(error.message);
        const code = nothing ? CODE.nothingToCompact : cancelled ? CODE.cancelled : CODE.failed;
        connection.refuse(id, code, mine.problem ?? error.message);
        over();
      },
    });
  }

  // Input, held and sent ------------------------------------------------------------------------------------------------

  private track(event: any): Promise<any> {
    const looked = this.look(event);
    this.inputs.set(looked, event);
    return looked.finally(() => this.inputs.delete(looked));
  }

  private async look(event: any): Promise<any> {
    const own = event.source === "extension" ? this.ownTry(event.text) : undefined;
    const result = await this.input(event, own);
    if (result.action === "handled") return result;
    // Pi has looked for a compaction before `input`, and does not again: this run would be in the middle of one.
    while (!this.over && (this.compacting?.nonce || (!this.running && !this.ctx.isIdle()))) await sleep(25);
    if (this.replaced) return { action: "handled" }; // it is held
    if (!this.running) this.startingSince = now();
    const queued = event.streamingBehavior !== undefined;
    this.passed.push({ text: result.text ?? event.text, at: Date.now(), queued, sending: own });
    return result;
  }

  /** Which of our messages this input is; by its text only where Pi has put a try off, and the code is another's. */
  private ownTry(text: string): Sending | undefined {
    const current = trying.getStore();
    const own = current?.sending;
    if (current && own) {
      current.sending = undefined;
      return own;
    }
    return this.sending.find((sending) => sending.text === text && sending.passed < sending.tries);
  }

  private async input(event: any, own: Sending | undefined): Promise<any> {
    const order = ++this.order;
    if (own) {
      if (own.passed++ > 0) return { action: "handled" }; // a second try of what has gone through already
    } else if (this.holding) return this.hold(order, event.text, event.images);
    const asked = () => ({
      text: event.text,
      images: event.images ?? [],
      source: event.source,
      streamingBehavior: event.streamingBehavior,
    });
    await this.up();
    const answer: any = this.wants.has("input") ? await this.ask("input", asked, limits.answer) : undefined;
    const text = answer?.text ?? event.text;
    const images = answer?.images ?? event.images;
    if (answer?.action === "handled") {
      if (own) {
        this.record(own.held, { handled: true });
        this.finish(own);
      }
      return { action: "handled" };
    }
    const mayHold = !this.over && (this.ctx.mode === "tui" || this.ctx.mode === "rpc"); // others end after this prompt
    if (!own && mayHold && (answer?.action === "hold" || this.holding)) return this.hold(order, text, images);
    return answer?.text === undefined ? { action: "continue" } : { action: "transform", text, images };
  }

  private hold(order: number, text: string, images: any[] | undefined): any {
    const item = { id: randomUUID(), order, text, images: images ?? [] };
    const session = this.ctx.sessionManager.getSessionId();
    const sha256 = createHash("sha256").update(text).digest("hex");
    this.pi.appendEntry(HELD, { id: item.id, session, text, images: item.images.length, sha256 });
    this.held.push(item);
    if (!this.holding) {
      this.holding = true;
      this.holdTimer = setTimeout(() => {
        this.notify("contexthost: a message was held back too long; it is sent now.", "warning");
        this.release();
      }, (limits.compaction + 10) * 1000);
    }
    this.sync();
    return { action: "handled" };
  }

  private release(): void {
    if (!this.holding || this.over) return;
    this.releasing = true;
    this.sendHeld();
  }

  /** After a compaction: Pi still counts as compacting while it tells of the end. */
  private sendHeldSoon(): void {
    if (this.releasing) setTimeout(() => this.sendHeld(), 10);
  }

  private sendHeld(): void {
    if (!this.releasing || this.over) return;
    if (this.isCompacting()) {
      setTimeout(() => this.sendHeld(), 25); // Pi refuses prompts meanwhile
      return;
    }
    const items = this.held.sort((a, b) => a.order - b.order);
    this.held = [];
    this.holding = this.releasing = false;
    clearTimeout(this.holdTimer);
    const ids = items.map((item) => item.id);
    this.record(ids, {});
    const text = joined(items);
    const done = (problem?: string) => {
      if (!problem) return;
      this.record(ids, { returned: true });
      this.offer(text, `contexthost: a held message could not be sent (${problem})`, imageCount(items));
    };
    // A template or skill is expanded as it would have been; a command never gets here.
    this.send(text, items.flatMap((item) => item.images), items.length === 1, done, ids);
  }

  /** Sends a message and looks whether Pi has taken it: a refusal shows nowhere else. */
  private send(text: string, images: any[], expand: boolean, done: (problem?: string) => void, held: string[] = []): void {
    const sending: Sending = { text, tries: 0, passed: 0, held, done };
    this.sending.push(sending);
    const content = images.length > 0 ? [{ type: "text", text }, ...images] : text;
    const attempt = () => {
      if (this.over || sending.passed > 0) return;
      if (this.isCompacting()) {
        setTimeout(attempt, 100); // Pi refuses prompts meanwhile
        return;
      }
      if (!this.running && this.isStarting(sending)) {
        setTimeout(attempt, 25); // Pi loses the second of two that come before the first one's run
        return;
      }
      if (sending.tries >= 20) {
        this.finish(sending, "Pi did not take it");
        return;
      }
      sending.tries++;
      const send = () => this.pi.sendUserMessage(content, { deliverAs: "followUp", expandPromptTemplates: expand });
      trying.run({ sending }, send);
      setTimeout(attempt, 250 * sending.tries);
    };
    attempt();
  }

  /** Whether something else is on its way to a run that has not begun: Pi is neither idle nor ready to queue then. */
  private isStarting(sending: Sending): boolean {
    const others = this.sending.some((other) => other !== sending && other.tries > 0 && other.passed === 0);
    return others || this.inputs.size > 0 || now() - this.startingSince < STARTING;
  }

  private finish(sending: Sending, problem?: string): void {
    sending.done?.(problem);
    sending.done = undefined;
    const late = !problem && sending.passed < sending.tries; // one more try of it may come
    if (!late) this.sending = this.sending.filter((other) => other !== sending);
  }

  /**
   * A user's message is about to get into the session: one of those that have passed. Pi stamps each just behind
   * `input`; a text that nobody sent was changed there, by a template or another extension.
   */
  private arrives(message: any): void {
    const text = textOf(message.content);
    const before = this.passed.filter((one) => one.at <= message.timestamp);
    const found = before.find((one) => one.text === text) ?? before.pop();
    if (!found) return;
    this.passed.splice(this.passed.indexOf(found), 1);
    if (!found.sending) return;
    this.arriving.push({ sending: found.sending, after: this.ctx.sessionManager.getLeafId() });
    setTimeout(() => this.confirm(), 0); // Pi appends the entry when all extensions have seen the message
  }

  /** The entries of sent messages have appeared. What the next start could not tell from a text is recorded. */
  private confirm(): void {
    if (this.over) return;
    for (const one of this.arriving.splice(0)) {
      const { sending, after } = one;
      const appended = this.between(after, this.ctx.sessionManager.getLeafId());
      const entry = appended?.find((entry) => entry.type === "message" && entry.message.role === "user");
      if (entry) {
        if (textOf(entry.message.content) !== sending.text) this.record(sending.held, { arrived: true });
        this.sync();
        this.finish(sending);
      } else if (this.running) {
        this.arriving.push(one);
        setTimeout(() => this.confirm(), 10);
      } else this.finish(sending, "it could not be written");
    }
  }

  /** After a run: what was queued and is neither there nor in the queue any more was taken out of it, by its user. */
  private settleSending(): void {
    this.confirm();
    if (this.ctx.hasPendingMessages()) return;
    for (const one of this.passed.splice(0)) {
      if (!one.queued && Date.now() - one.at < STARTING) this.passed.push(one); // its run has not begun
      else if (one.sending && one.queued) {
        this.record(one.sending.held, { returned: true });
        this.finish(one.sending);
      } else if (one.sending) this.finish(one.sending, "Pi did not take it");
    }
  }

  /** Records that held input is sent, or what became of it. Where that fails (a full disk) the input matters more. */
  private record(ids: string[], what: { arrived?: true; returned?: true; handled?: true }): void {
    if (ids.length === 0) return;
    try {
      this.pi.appendEntry(SENT, { ids, ...what });
    } catch (error) {
      this.tellOnce("record", `contexthost: the session cannot be written: ${(error as Error).message}`, "error");
    }
  }

  /** Pi would run them in the session that it has just replaced: the model is asked, and nothing of it is kept. */
  private keepInputs(reason: string): void {
    if (reason === "reload" || !this.ctx || (this.ctx.mode !== "tui" && this.ctx.mode !== "rpc")) return;
    this.replaced = true;
    try {
      for (const { source, text, images } of this.inputs.values()) {
        if (source !== "extension") this.hold(++this.order, text, images);
      }
    } catch (error) {
      this.tellOnce("record", `contexthost: the session cannot be written: ${(error as Error).message}`, "error");
    }
  }

  /** At the end of the session: held input never goes into another one. */
  private giveBack(reason: string): void {
    if (this.held.length === 0 || this.ctx.mode !== "tui" || reason === "quit") return; // found at the next start
    const items = this.held.sort((a, b) => a.order - b.order);
    this.held = [];
    this.record(items.map((item) => item.id), { returned: true });
    this.offer(joined(items), "contexthost: a held message was not sent", imageCount(items));
  }

  /**
   * At the start: what was held when the session ended, and never sent; or was sent, and Pi ended before the message
   * itself was there: no user's message behind has its text, and no record says that it came in with another one.
   */
  private giveBackLeftOver(): void {
    if (this.ctx.mode !== "tui" && this.ctx.mode !== "rpc") return;
    const manager = this.ctx.sessionManager;
    const left = new Map<string, any>();
    let onTheWay: { ids: string[]; text: string; at: number }[] = [];
    const settled = (ids: string[]) => {
      for (const id of ids) left.delete(id);
      onTheWay = onTheWay.filter((sent) => sent.ids.some((id) => left.has(id)));
    };
    for (const entry of manager.getEntries()) {
      if (onTheWay.length > 0 && entry.type === "message" && entry.message?.role === "user") {
        const text = textOf(entry.message.content);
        settled(onTheWay.find((sent) => sent.text === text)?.ids ?? []);
      }
      if (entry.type !== "custom") continue;
      const data = entry.data ?? {};
      if (entry.customType === HELD && data.session === manager.getSessionId()) left.set(data.id, data);
      if (entry.customType !== SENT) continue;
      const ids: string[] = Array.isArray(data.ids) ? data.ids : [];
      const items = ids.flatMap((id) => left.get(id) ?? []);
      if (data.returned || data.handled || data.arrived) settled(ids);
      else if (items.length > 0) onTheWay.push({ ids, text: joined(items), at: Date.parse(entry.timestamp) });
    }
    if (this.reason.reason === "reload" && this.ctx.hasPendingMessages()) {
      // Pi still has its queue: what is in there arrives, or is found at the next start.
      for (const { ids, text, at } of onTheWay) {
        this.passed.push({ text, at, queued: false, sending: { text, tries: 1, passed: 1, held: ids } });
        for (const id of ids) left.delete(id);
      }
    }
    if (left.size === 0) return;
    const items = [...left.values()];
    this.record(items.map((item) => item.id), { returned: true });
    const text = items.map((item) => item.text).join("\n\n");
    const images = items.reduce((sum, item) => sum + (item.images ?? 0), 0);
    this.offer(text, "contexthost: a message was held back when this session ended, and not sent", images);
  }

  /** Puts text into the editor behind what is there; where there is no editor, shows it. */
  private offer(text: string, what: string, images = 0): void {
    const attach = images > 0 ? ` ${images} image${images > 1 ? "s" : ""} must be attached again.` : "";
    if (this.ctx.mode === "tui") {
      const draft = this.ctx.ui.getEditorText();
      this.ctx.ui.setEditorText(draft ? `${draft}\n\n${text}` : text);
      this.notify(`${what}: it is in the editor.${attach}`, "warning");
    } else this.notify(`${what}: ${text}${attach && `\n${attach.trim()}`}`, "warning");
  }

  // What Python asks for ------------------------------------------------------------------------------------------------

  private receive(connection: Connection, method: string, event: any, id?: number): void {
    if (this.over || connection !== this.connection) {
      if (id !== undefined) connection.refuse(id, CODE.failed, "the session is ending");
      return;
    }
    try {
      this.handle(connection, method, event, id);
    } catch (error) {
      if (id !== undefined) connection.refuse(id, CODE.failed, error instanceof Error ? error.message : String(error));
    }
  }

  private handle(connection: Connection, method: string, event: any, id?: number): void {
    const ui = this.ctx.ui;
    const answer = (value: any) => id !== undefined && connection.answer(id, value);
    switch (method) {
      case "ui/notify":
        return this.notify(event.message, event.level);
      case "ui/setStatus":
        return ui.setStatus(event.key, event.text ?? undefined);
      case "ui/setEditorText":
        return ui.setEditorText(event.text);
      case "ui/getEditorText":
        answer(ui.getEditorText());
        return;
      case "ui/confirm":
        ui.confirm(event.title, event.message, { timeout: event.seconds * 1000 }).then(answer, () => answer(false));
        return;
      case "model/credential":
        // Pi's own key or token of a provider, for a plugin that talks to it; it goes no further than this pipe.
        this.ctx.modelRegistry.getApiKeyForProvider(event.provider).then(
          (key: string | undefined) => answer({ key: key ?? null }),
          () => answer({ key: null }),
        );
        return;
      case "model/headers":
        // Those that the user set up in models.json: Pi resolves them for each request and puts them into no model.
        this.ctx.modelRegistry.getApiKeyAndHeaders(this.ctx.model).then(
          (found: any) => answer({ headers: found.headers ?? {} }),
          () => answer({ headers: {} }),
        );
        return;
      case "boundary/watch":
        if (event.asked !== this.asked) return; // the answer to what is asked now is on its way
        this.boundaries = { turn_end: event.turn_end, agent_before_settle: event.agent_before_settle };
        return this.listen();
      case "provider/watch":
        this.watch = { headers: event.headers, requests: event.requests };
        return;
      case "session/compact":
        void this.compact(connection, id!, event).catch((error) => connection.refuse(id!, CODE.failed, String(error)));
        return;
      case "session/send":
        return this.send(event.text, event.images, false, (problem) =>
          problem ? connection.refuse(id!, CODE.failed, problem) : connection.answer(id!, {}),
        );
      case "session/appendEntry":
        this.pi.appendEntry(event.customType, event.data);
        this.sync();
        answer({});
        return;
      case "session/abort":
        return this.ctx.abort();
      case "session/resync":
        this.sent = 0;
        this.leafMoved = true;
        return this.sync();
      case "held/release":
        return this.release();
      case "cancel":
        return; // what was asked for cannot be taken back in Pi
      default:
        if (id !== undefined) connection.refuse(id, CODE.methodNotFound, `this extension has no ${method}`);
    }
  }

  private notify(message: string, level: "info" | "warning" | "error"): void {
    if (this.ctx.hasUI) this.ctx.ui.notify(message, level);
    else console.error(message);
  }

  private tellOnce(kind: string, message: string, level: "info" | "warning" | "error"): void {
    if (this.told.has(kind)) return;
    this.told.add(kind);
    this.notify(message, level);
  }

  // Tools and commands --------------------------------------------------------------------------------------------------

  private registerTool(tool: { name: string; description: string; parameters: any }): void {
    this.pi.registerTool({
      ...tool,
      label: tool.name,
      execute: async (toolCallId: string, given: any, signal: AbortSignal | undefined) => {
        const connection = await this.reach(signal);
        const asked = { name: tool.name, toolCallId, arguments: given };
        const answer = await connection.request("tool/call", this.params(asked), limits.tool, signal);
        if (!answer.ok) throw new Error(failure(tool.name, answer));
        if (answer.value.isError) throw new Error(textOf(answer.value.content));
        return { content: answer.value.content, details: answer.value.details ?? {} };
      },
    });
  }

  private registerCommand(command: { name: string; description: string }): void {
    this.pi.registerCommand(command.name, {
      description: command.description,
      handler: async (given: string) => {
        let connection: Connection;
        try {
          connection = await this.reach();
        } catch (error) {
          this.notify(`/${command.name}: ${(error as Error).message}`, "error");
          return;
        }
        const asked = { name: command.name, arguments: given };
        const answer = await connection.request("command/run", this.params(asked), limits.tool);
        if (!answer.ok) this.notify(`/${command.name}: ${failure("it", answer)}`, "error");
        else if (answer.value.text) this.notify(answer.value.text, "info");
      },
    });
  }

  private deactivate(names: string[]): void {
    const active: string[] = this.pi.getActiveTools();
    const gone = active.filter((name) => names.includes(name));
    if (gone.length === 0) return;
    this.inactive = gone;
    this.pi.setActiveTools(active.filter((name) => !gone.includes(name)));
  }

  /** After all: what was taken away when the Python side did not start. */
  private reactivate(): void {
    if (this.inactive.length > 0) this.pi.setActiveTools([...this.pi.getActiveTools(), ...this.inactive]);
    this.inactive = [];
  }
}

// Small things --------------------------------------------------------------------------------------------------------

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
  const size = (block: any) => (block?.type === "image" ? 5000 : Buffer.byteLength(JSON.stringify(block) ?? ""));
  return blocks.reduce((sum, block) => sum + size(block), 100);
}

/** Why a tool or a command has no answer; for the model, too. */
function failure(what: string, answer: Answer & { ok: false }): string {
  if (answer.why !== "late") return answer.message;
  return `${what} took longer than ${limits.tool} s and was ended (pi.toolSeconds in host.json is the limit)`;
}

/** The mark that addresses a compaction to one plugin: nonce, plugin, and what is left of the instructions. */
function readMark(instructions: string | undefined): [string, string | undefined, string | undefined] {
  if (!instructions?.startsWith(MARK)) return ["", undefined, instructions];
  const end = instructions.indexOf("\n");
  const [nonce, to] = instructions.slice(MARK.length, end < 0 ? undefined : end).split(":");
  return [nonce, to || undefined, (end < 0 ? "" : instructions.slice(end + 1)) || undefined];
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

function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

function textOf(content: any): string {
  if (typeof content === "string") return content;
  return (content ?? []).filter((block: any) => block?.type === "text").map((block: any) => block.text).join("\n");
}

function joined(items: { text: string }[]): string {
  return items.map((item) => item.text).filter((text) => text !== "").join("\n\n");
}

function imageCount(items: HeldInput[]): number {
  return items.reduce((sum, item) => sum + item.images.length, 0);
}

export default function contexthost(pi: any): void {
  if (INSTALLED.command.length > 0) new Session(pi);
}
