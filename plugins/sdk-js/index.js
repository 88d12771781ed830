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

// The deadline of a request that has none.
export const NEVER = Infinity;

// Only the hooks that plugin.toml names in `wants` are called.
export class Scheduler {
  // First of all. What it throws is shown to whoever attaches the plug-in, and refuses the attachment.
  configure(config, model) {}

  // Which of the candidates run now.
  plan(round, ready) {
    return Plan.default();
  }

  // Who of those who wait gets a slot. `room` counts free slots an instance. Left as it is: whoever waits longest takes what is free.
  admit(round, waiting, room, victims) {
    return Admission.inOrder(waiting.length, room);
  }

  // Something happened.
  observe(event) {}

  // What whoever takes its place shall know; at most 1 MiB of bytes.
  save() {
    return new Uint8Array();
  }

  // What an earlier one saved, perhaps of another version.
  restore(saved) {}
}
