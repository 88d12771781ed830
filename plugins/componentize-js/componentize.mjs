// node --input-type=module -e THIS ENTRY WIT WORLD OUT, in the folder where componentize-js is installed. No WASI: a plug-in has no files, clock or
// network, and a component that asks for none needs no stand-ins.
import { writeFile } from "node:fs/promises";
import { componentize } from "@bytecodealliance/componentize-js";

const [sourcePath, witPath, worldName, out] = process.argv.slice(1);
const disableFeatures = ["random", "stdio", "clocks", "http", "fetch-event"];
try {
  const { component } = await componentize({ sourcePath, witPath, worldName, disableFeatures });
  await writeFile(out, component);
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
