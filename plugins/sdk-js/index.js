// Writes plug-ins for the Sequor inference server: a plug-in decides which requests run together and when.
//
//     import { Plan, Scheduler } from "./sdk/index.js";
//
//     export class Plugin extends Scheduler {
//       plan(round, ready) {
//         return Plan.fire(ready.batch(ready.sorted(ready.deadlineUs), round));
//       }
//     }
//
// `sequor plugin build` makes a component of the class `Plugin` of plugin.js. The same file runs under Node: testing.js drives it.
import { Admission, Plan } from "./answers.js";
import * as host from "./host.js";
import { keyOf } from "./keys.js";

export { Admission, Plan, host, keyOf };
export { restored, saved } from "./saved.js";

// The deadline of a request that has none.
export const NEVER = Infinity;

// Only the hooks that plugin.toml names in `wants` are called.
export class Scheduler {
  // Configures the plug-in, before any other call. An exception refuses the plug-in, and the operator reads it.
  configure(config, model) {}

  // Chooses the candidates that run now.
  plan(round, ready) {
    return Plan.default();
  }

  // Decides which waiting sequences get a slot, for the first of `waiting`; the others go on waiting. `room` is the number of free slots of each
  // instance. Default: the sequences that wait longest take the free slots.
  admit(round, waiting, room, victims) {
    return Admission.inOrder(waiting.length, room);
  }

  // Learns what happened. The events since the last call come before each question.
  observe(event) {}

  // Returns the state that the next version gets; at most 1 MiB of bytes. saved(value) makes them.
  save() {
    return new Uint8Array();
  }

  // Restores a state that an earlier instance saved, perhaps of another version. restored(bytes) reads what saved(value) made.
  restore(saved) {}
}
