"""The stubs name what the modules have: every public class and function, with its parameters."""

import ast
import pathlib
import unittest

KIT = pathlib.Path(__file__).resolve().parents[1] / "sdk-python" / "sequor_plugin"
# Types that a module's users name and that it makes at run time.
ONLY_IN_STUBS = {"__init__.Model", "__init__.Round", "testing.Candidate"}


def names(path):
    """Public classes and functions of a module, each with the names of its parameters."""
    found = {}

    def walk(body, prefix):
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[prefix + node.name] = None
                walk(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                args = node.args
                found[prefix + node.name] = [arg.arg for arg in [*args.posonlyargs, *args.args, args.vararg, *args.kwonlyargs, args.kwarg] if arg]

    walk(ast.parse(path.read_text()).body, f"{path.stem}.")
    return found


class Stubs(unittest.TestCase):
    def test_stubs_have_the_names_of_their_modules(self):
        stubs = sorted(KIT.glob("*.pyi"))
        self.assertGreater(len(stubs), 8)
        for stub in stubs:
            has, says = names(stub.with_suffix(".py")), names(stub)
            for name in ONLY_IN_STUBS:
                says.pop(name, None)
            self.assertEqual(has, says, stub.name)

    def test_modules_of_authors_have_stubs(self):
        own = {"contents", "glue", "initializer_glue", "processor_glue", "wire"}
        missing = [module.name for module in KIT.glob("*.py") if module.stem not in own and not module.with_suffix(".pyi").exists()]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
