// The exports of a component: the class `Plugin` of plugin.js, behind the types of the contract. The build puts it beside plugin.js, as sequor-entry.js.
import * as server from "sequor:plugin/host@0.1.0";
import { Plugin } from "./plugin.js";
import { Glue, words } from "./sdk/glue.js";
import { connect } from "./sdk/host.js";
import { sequenceText } from "./sequor-identity.js";

connect(server, sequenceText);
const glue = new Glue(new Plugin());

export const scheduler = {
  configure: (config, model) => orErr(() => glue.configure(config, model)),
  plan: (round, ready, events) => {
    const said = glue.plan(round, ready, events);
    return said && { ...said, fire: Uint32Array.from(said.fire) };
  },
  admit: (round, waiting, room, victims, events) => glue.admit(round, waiting, room, victims, events),
  observe: (events) => glue.observe(events),
  save: () => glue.save(),
  restore: (saved) => orErr(() => glue.restore(saved)),
};

// An error of the contract is a text.
function orErr(call) {
  try {
    call();
  } catch (error) {
    throw words(error);
  }
}
