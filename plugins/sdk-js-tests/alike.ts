// The names that the kit's types promise are those that its modules have, one for one. `said` are the types; `made` are the modules without them,
// as the compiler reads them.
import * as said from "./said/index.js";
import * as saidOfTests from "./said/testing.js";
import * as madeEvents from "./made/events.js";
import * as made from "./made/index.js";
import * as madeOfTests from "./made/testing.js";

// What one has and the other has not is named in the compiler's error.
type Unlike<A, B> = Exclude<keyof A, keyof B> | Exclude<keyof B, keyof A>;
type Told<U> = [U] extends [never] ? "alike" : `${U & string} is not in both`;
function alike<A, B>(_: Told<Unlike<A, B>>) {}

alike<typeof said, typeof made>("alike");
// What gives a component its host is none of the author's.
alike<typeof said.host, Omit<typeof made.host, "connect">>("alike");
alike<typeof said.Admission, typeof made.Admission>("alike");
alike<said.Scheduler, made.Scheduler>("alike");
alike<typeof said.Plan, typeof made.Plan>("alike");
// An answer in the words of the contract is the kit's to give.
alike<said.Plan, Omit<made.Plan, "decide">>("alike");
alike<said.Event, madeEvents.Event>("alike");
alike<typeof saidOfTests, typeof madeOfTests>("alike");
alike<saidOfTests.Bench, Omit<madeOfTests.Bench, "glue" | "manifest" | "model">>("alike");
