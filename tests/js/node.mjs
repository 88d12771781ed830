// `node node.mjs HOST:PORT`: prints one line; exit 1 on any mismatch.
import { check } from "./stream.mjs";

const { count, wrong } = await check(process.argv[2]);
for (const fault of wrong.slice(0, 20)) console.error(fault);
console.log(`websocket: ${count} checks; wrong: ${wrong.length}`);
process.exit(wrong.length === 0 ? 0 : 1);
