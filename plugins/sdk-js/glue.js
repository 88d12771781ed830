// A plug-in by the functions of the contract. The component and a test both run it.
import { each } from "./events.js";
import * as host from "./host.js";
import { Ready } from "./ready.js";

// One instance: the author's class, and the model it serves. An exception goes to the server's log with its line, before the trap, which has no message.
export class Glue {
  constructor(plugin) {
    this.plugin = plugin;
  }

  configure(config, model) {
    this.model = model;
    this.plugin.configure(JSON.parse(config || "{}"), { ...model, version: Number(model.version) });
  }

  plan(round, ready, events) {
    this.observe(events);
    return told(() => {
      const asked = numbered(round);
      return this.plugin.plan(asked, new Ready(ready, this.model))?.decide(asked.nowUs);
    });
  }

  admit(round, waiting, room, victims, events) {
    this.observe(events);
    return told(() => this.plugin.admit(numbered(round), new Ready(waiting, this.model), room, new Ready(victims, this.model)));
  }

  // Events, if there are any.
  observe(events) {
    if (!events) return;
    told(() => {
      for (const event of each(events, this.model)) this.plugin.observe(event);
    });
  }

  save() {
    return told(() => this.plugin.save());
  }

  restore(saved) {
    this.plugin.restore(saved);
  }
}

function numbered(round) {
  return { ...round, nowUs: Number(round.nowUs), runUs: Number(round.runUs) };
}

function told(call) {
  try {
    return call();
  } catch (error) {
    host.error(words(error));
    throw error;
  }
}

// What was thrown, and where in the author's own file.
export function words(error) {
  const frames = String(error?.stack ?? "").split("\n").filter((line) => /\.m?js:\d/.test(line));
  const own = frames.find((line) => !/\bsdk\/|sdk-js\/|sequor-entry\.js|initializer\.js/.test(line)) ?? frames[0];
  const at = own?.match(/([^/\\\s(@]+\.m?js):(\d+)/);
  const said = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  return at ? `${said} at ${at[1]}:${at[2]}` : said;
}
