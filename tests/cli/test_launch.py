"""launch.run ends a program as bare python does: same stdout, same stderr, same status."""

import ast
import os
import py_compile
import re
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path
from types import TracebackType

import pytest

from onegraph.cli.launch import strip_frames

DRIVER = Path(__file__).parent / "programs" / "driver.py"
BARE_ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "DRIVER"))}
BARE_ENVIRONMENT["PYTHONDONTWRITEBYTECODE"] = "1"  # A cached module compiles without warnings.

ADDRESS = re.compile("at 0x[0-9a-f]+")

# Programs that see, or whose end depends on, how they were started: each runs in all three ways.
PROGRAMS = {
    "sees its own world": """
        '''A docstring.'''
        import sys, __main__
        names = ['__annotations__', '__cached__', '__doc__', '__file__', '__name__', '__package__']
        print(list(globals()), [globals().get(name) for name in names], type(__builtins__))
        print(sys.argv, sys.path, getattr(__spec__, 'name', None))
        print(type(__loader__), getattr(__loader__, 'path', None))
        print(__main__ is sys.modules['__main__'], vars(__main__) is globals(), repr(__main__)[:30])
        print(sys.gettrace(), sys.getprofile(), sys.exc_info(), sys.getrecursionlimit())
        x: undefined_name if False else int = 1
        print(__annotations__, sys.excepthook is sys.__excepthook__)
    """,
    "has no future of ours": "def f(x: 1 + 1): ...\nprint(f.__annotations__)",
    "exit": "import sys; print('out'); sys.exit()",
    "exit message": "import sys; print('out'); sys.exit('中文 message')",
    "exit in except": """
        import sys
        try: 1 / 0
        except ZeroDivisionError: sys.exit(4)
    """,
    "interrupt": """
        import atexit
        atexit.register(print, 'exit')
        print('out')
        raise KeyboardInterrupt
    """,
    "interrupt by signal": """
        import os, signal, time
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    """,
    "interrupt hook": """
        import atexit, sys
        def hook(*error): print('hook', error[0], sys.last_value is error[1])
        sys.excepthook = hook
        value = KeyboardInterrupt()
        @atexit.register
        def last():
            print(sys.last_value is value, sys.excepthook is hook, sys.last_traceback.tb_next)
        raise value
    """,
    "raise": "def f():\n    return 1 / 0\nprint('out')\nf()",
    "raise cause": """
        def f():
            try: {}['key']
            except KeyError as error: raise ValueError('bad') from error
        try: f()
        except ValueError: raise RuntimeError('worse')
    """,
    "raise group": """
        def member(n):
            try: 1 / n
            except ZeroDivisionError as error:
                try: raise ValueError(n)
                except ValueError as inner:
                    inner.add_note('note')
                    return inner
        raise ExceptionGroup('all', [member(0), ExceptionGroup('in', [member(0), TypeError(2)])])
    """,
    "raise in exec": "exec(compile('\\n\\n1 / 0', 'made up.py', 'exec'))",
    "repeated frames": """
        def f(n): return 1 / 0 if n == 0 else f(n - 1)
        f(50)
    """,
    "hook": """
        import sys, traceback
        def hook(kind, value, tb):
            print(kind, value, sys.exc_info(), sys.last_type, sys.last_value is value)
            print(sys.last_traceback is tb is value.__traceback__, value.__context__)
            traceback.print_exception(kind, value, tb)
        sys.excepthook = hook
        1 / 0
    """,
    "hook raises": """
        import sys
        def hook(*error): raise TypeError('in hook')
        sys.excepthook = hook
        1 / 0
    """,
    "hook exits": """
        import sys
        def hook(*error): sys.exit('from hook')
        sys.excepthook = hook
        1 / 0
    """,
    "unraisable": """
        class C:
            def __del__(self): 1 / 0
        c = C()
        del c
        last = C()
    """,
    "atexit": """
        import atexit, sys, traceback
        atexit.register(lambda: print('first', sorted(k for k in globals() if k[0] == '_')))
        atexit.register(lambda: print('second', hasattr(sys, 'last_value'), sys.exc_info()))
        atexit.register(lambda: 1 / 0)
        atexit.register(lambda: traceback.print_stack())
        print('out')
        'x' + 1
    """,
    "threads": """
        import threading, time
        main = threading.main_thread() is threading.current_thread()
        def late():
            time.sleep(0.05)
            print('late', __name__, main)
            1 / 0
        threading.Thread(target=late, name='late').start()
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        print('end')
    """,
    "fork": """
        import os, sys
        print('before', flush=True)
        if pid := os.fork(): print('child ended', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        else: sys.exit(9)
    """,
    "stdin": "import sys; print(input('? '), sys.stdin.read())",
    "main deleted": "import sys; del sys.modules['__main__']; 1 / 0",
    "pickle": """
        import pickle
        class C: pass
        def f(): return 1
        print(pickle.dumps([C, f]).hex(), type(pickle.loads(pickle.dumps(C()))))
    """,
    "warnings": """
        import warnings
        def f(): warnings.warn('one up', stacklevel=2)
        f()
        warnings.warn('here')
        warnings.warn('old', DeprecationWarning)
        warnings.warn('soon', PendingDeprecationWarning)
        print(sorted(__warningregistry__), warnings.filters)
    """,
    "syntax warnings": "x = 1\nif x is 1: print('\\d')\nassert (x, 2)",
    "inspect": """
        import inspect, linecache
        def f():
            return 'body'
        try: print(inspect.getsource(f), inspect.getfile(f))
        except Exception as error: print(type(error), error)
        print(inspect.getmodule(f), inspect.currentframe().f_globals is globals())
    """,
    "print_exc": """
        import traceback
        try: 1 / 0
        except ZeroDivisionError: traceback.print_exc()
    """,
    "asyncio interrupt": """
        import asyncio, os, signal
        async def f():
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(5)
        asyncio.run(f())
    """,
    "tracer": """
        import sys
        def tracer(frame, event, arg):
            print(event, frame.f_code.co_name, frame.f_lineno)
            return tracer
        def f():
            return 1
        sys.settrace(tracer)
        f()
    """,
    "shutdown order": """
        import sys
        class C:
            def __init__(self, name): self.name = name
            def __del__(self, write=sys.stdout.write): write(self.name + '\\n')
        _private, public, other = C('_private'), C('public'), C('other')
        cycle = C('cycle'); cycle.me = cycle
        def f(): return public
    """,
    "typing": """
        import dataclasses, typing
        @dataclasses.dataclass
        class Node:
            after: 'Node | None' = None
        print(typing.get_type_hints(Node), Node())
        Node(1, 2)
    """,
}

# These run as scripts.
SCRIPTS = {
    "exit 0": "import sys; sys.exit(0)",
    "exit 3": "import sys; sys.exit(3)",
    "exit True": "import sys; sys.exit(True)",
    "exit -1": "import sys; sys.exit(-1)",
    "exit 256": "import sys; sys.exit(256)",
    "exit 2**40": "import sys; sys.exit(2**40 + 5)",
    "exit tuple": "import sys; sys.exit((1, 2))",
    "exit float": "import sys; sys.exit(0.0)",
    "exit subclass": """
        class Stop(SystemExit):
            code = 'class attribute'
        raise Stop('stop')
    """,
    "builtin exit": "exit(5)",
    "_exit": "import os, atexit; atexit.register(print, 'never'); print('lost'); os._exit(6)",
    "abort": "import os, sys; sys.stdout.flush(); os.kill(os.getpid(), 9)",
    "interrupt subclass": "class K(KeyboardInterrupt): pass\nraise K('k')",
    "interrupt, hook exits": """
        import sys
        sys.excepthook = lambda *error: sys.exit(7)
        raise KeyboardInterrupt
    """,
    "raise class": "raise ValueError",
    "raise GeneratorExit": "raise GeneratorExit('gen')",
    "raise StopIteration": "next(iter(()))",
    "raise BaseException": "class Mine(BaseException): pass\nraise Mine('中文', 2)",
    "raise from None": "try: 1 / 0\nexcept ZeroDivisionError: raise ValueError('x') from None",
    "raise notes": "error = ValueError('x')\nerror.add_note('one\\ntwo')\nraise error",
    "raise cycle": """
        first, second = ValueError(1), ValueError(2)
        first.__cause__, second.__cause__ = second, first
        raise first
    """,
    "raise frozen": """
        from dataclasses import dataclass
        @dataclass(frozen=True)
        class Frozen(Exception):
            n: int
        raise Frozen(3)
    """,
    "raise unprintable": """
        class Bad(Exception):
            def __str__(self): raise ValueError
        raise Bad
    """,
    "syntax error in exec": "exec('x = (')",
    "syntax error in import": """
        from pathlib import Path
        Path('broken.py').write_text('def f(:')
        import broken
    """,
    "hook takes too little": "import sys\nsys.excepthook = lambda: None\n1 / 0",
    "hook is None": "import sys; sys.excepthook = None; 1 / 0",
    "audit hook": """
        import sys
        def audit(event, args):
            if event == 'sys.excepthook': print(event, args[1:3])
        sys.addaudithook(audit)
        1 / 0
    """,
    "thread and raise": """
        import threading, time
        def late():
            time.sleep(0.05)
            print('late')
        threading.Thread(target=late).start()
        raise ValueError('main')
    """,
    "stdout closed": "import sys; print('out'); sys.stdout.close()",
    "stdout broken": "import os; print('out'); os.close(1)",
    "stdout deleted": "import sys; del sys.stdout; 1 / 0",
    "stdout replaced": "import io, sys; sys.stdout = sys.stderr = io.StringIO(); print(1); 1 / 0",
    "no stderr": "import sys; sys.stderr = None; 1 / 0",
    "no stderr, message": "import sys; sys.stderr = None; sys.stdout = None; sys.exit('lost')",
    "argparse": """
        import argparse
        argparse.ArgumentParser(prog='p').parse_args(['--wrong'])
    """,
    "unittest": """
        import sys, unittest
        class Test(unittest.TestCase):
            def test(self): print('tested')
        runner = unittest.TextTestRunner(stream=open('log', 'w'))
        program = unittest.main(argv=['x'], testRunner=runner, exit=False)
        sys.exit(f'{program.result.testsRun} {program.result.wasSuccessful()}')
    """,
    "doctest": "'''\n>>> 1 + 1\n3\n'''\nimport doctest\ndoctest.testmod()",
    "asyncio": """
        import asyncio
        async def f():
            await asyncio.sleep(0)
            raise ExceptionGroup('tasks', [ValueError(1)])
        asyncio.run(f())
    """,
    "signal handler": """
        import os, signal, sys
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(11))
        os.kill(os.getpid(), signal.SIGTERM)
        while True: pass
    """,
}

# A debugger's commands, a line each, and the last line of the program they are given to. Where that
# raises, stepping past it shows the frame that called the program, so those sessions do not step.
DEBUGGER = {
    "continue": ("p x\nc\n", ""),
    "continue to an exception": ("p x\nc\n", "1 / 0"),
    "next to the end": ("n\nn\nn\nn\nn\nn\n", ""),
    "into functions": ("unt\ns\nr\nn\nn\nn\n", ""),
    "until": ("unt\nunt\nunt\nunt\n", ""),
    "quit": ("q\n", ""),
    "end of input": ("", "1 / 0"),
}

SPAWN = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
class Point:
    def __init__(self, x): self.x = x
def double(point):
    return Point(point.x * 2), __name__, Point.__module__, sys.argv[1:]
print('imported as', __name__, flush=True)
if __name__ == '__main__':
    context = multiprocessing.get_context(sys.argv[1])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        point, *rest = pool.submit(double, Point(4)).result()
    print(type(point) is Point, point.x, rest)
    child = context.Process(target=sys.exit, args=(3,))
    child.start()
    child.join()
    print(child.exitcode)
    sys.exit(child.exitcode)
"""

SYNTAX_ERRORS = {
    "operator": b"x = 1\ny = 2 +* 3\n",
    "paren": b"x = (1,\n  2\n\nprint(1)\n",
    "quote": b"x = 'abc\ny = 1\n",
    "triple quote": b'x = """abc\n\n\nfoo',
    "no newline": b"x = 1 +",
    "block": b"if 1:\nx = 1\n",
    "block at the end": b"def f():\n",
    "block at the end, no newline": b"if 1:\n    for x in y:",
    "block at the end, comment": b"if 1:\n  # here\n\n\n",
    "dedent": b"if 1:\n        x=1\n    y=2\n",
    "tabs": b"if 1:\n        x=1\n\ty=2\n",
    "return": b"def f():\n  pass\nreturn 3\n",
    "nonlocal": b"def f():\n  nonlocal x\n",
    "f-string": b'y = 1\nx = f"""\n{a b}"""\n',
    "statement": b'print "hello"\n',
    "chinese": '# 中文\nx = "中文" +* 3\n'.encode(),
    "curly quotes": "x = “a”\n".encode(),
    "gbk": '# fine\nx = 1\nx = "中文"\n'.encode("gbk"),
    "gbk in a comment": 'print("runs")\n# 中文\n'.encode("gbk"),
    "gbk declared": '# coding: gbk\ny = "中文" +* 3\n'.encode("gbk"),
    "unknown codec": b"#!/usr/bin/python\n# coding: foobar\nx = 1\n",
    "wrong codec": b"# coding: ascii\nx = 1\n# \xff\n",
    "mark and codec": b"\xef\xbb\xbf# coding: latin-1\nprint(1)\n",
    "mark": b"\xef\xbb\xbfx = 1 +* 2\n",
    "utf-16": "print(1)\n".encode("utf-16"),
    "carriage returns": b"x = 1\r\ny = (2\r\nprint(3)\r\n",
    "form feed": b"x = 1\n\x0c 1\n",
    "too deep": b"(" * 300 + b")" * 300,
}

SOURCES = {
    "wrong bytes declared": b"# coding: utf-8\nprint(1)\n# \xff\n",
    "empty": b"",
    "mark": b"\xef\xbb\xbfprint(1)\n",
    "gbk": '# coding: gbk\nprint(ascii("中文"))\n'.encode("gbk"),
    "carriage returns": b'x = """a\r\nb"""\r\nprint(ascii(x))\r\n',
    "bare carriage returns": b"x = 1\rprint(x)\r",
    "no newline": b"print(1)",
    "indented end": b"if 1:\n    print(1)\n  ",
}


def start(command, cwd, stdin="", merged=False, env=()):
    """Start a command whose output can be awaited with `finish`."""
    process = subprocess.Popen(
        [os.fspath(part) for part in command],
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if merged else subprocess.PIPE,
        env=BARE_ENVIRONMENT | dict(env),
    )
    return process, stdin


def finish(started):
    """Return the command's status, its stdout and its stderr, without addresses in memory."""
    process, stdin = started
    with process:
        streams = process.communicate(stdin.encode(), timeout=60)
    return process.returncode, *(ADDRESS.sub("at ...", (text or b"").decode()) for text in streams)


def bare_python(arguments, cwd, flags=(), **options):
    """Start python on the arguments."""
    return start([sys.executable, *flags, *arguments], cwd, **options)


def launched(arguments, cwd, flags=(), **options):
    """Start the driver on the same arguments."""
    return start([sys.executable, *flags, DRIVER, *arguments], cwd, **options)


def assert_same(cwd, *arguments, **options):
    """Run the arguments under bare python and under the driver, and compare all there is to see."""
    both = bare_python(arguments, cwd, **options), launched(arguments, cwd, **options)
    bare, ours = map(finish, both)
    assert ours == bare
    return ours


def dedent(source):
    """Take the margin of the table above off a program."""
    return textwrap.dedent(source.strip("\n")).rstrip() + "\n"


def command_for(kind, source, directory):
    """Lay a program out as a script, a module or code, and return the arguments that run it."""
    if kind == "code":
        return ["-c", source]
    (directory / "program.py").write_text(source)
    return ["program.py"] if kind == "script" else ["-m", "program"]


@pytest.mark.parametrize("kind", ["script", "module", "code"])
@pytest.mark.parametrize("source", PROGRAMS.values(), ids=PROGRAMS)
def test_program_is_the_same(source, kind, tmp_path):
    """A program's output, error text and exit status are those of bare python, however it runs."""
    arguments = command_for(kind, dedent(source), tmp_path)
    assert_same(tmp_path, *arguments, "-x", "--y=1", stdin="one\ntwo\n")


@pytest.mark.parametrize("source", SCRIPTS.values(), ids=SCRIPTS)
def test_script_is_the_same(source, tmp_path):
    """A script's output, error text and exit status are those of bare python."""
    arguments = command_for("script", dedent(source), tmp_path)
    assert_same(tmp_path, *arguments, stdin="one\ntwo\n")


@pytest.mark.parametrize("kind", ["script", "module", "code"])
@pytest.mark.parametrize("name", ["exit message", "raise", "interrupt", "hook raises"])
def test_streams_interleave_the_same(name, kind, tmp_path):
    """What a program left in stdout's buffer comes on the same side of its traceback as bare."""
    arguments = command_for(kind, dedent(PROGRAMS[name]), tmp_path)
    assert_same(tmp_path, *arguments, merged=True)


@pytest.mark.parametrize(("commands", "ending"), DEBUGGER.values(), ids=DEBUGGER)
def test_debugger_is_the_same(commands, ending, tmp_path):
    """A session of pdb looks the same, also where it steps past the program's end."""
    if sys.version_info >= (3, 13) and commands.endswith(("n\n", "unt\n")):
        pytest.skip("bare, this pdb steps on into the interpreter's own shutdown")
    source = f"x = 1\nbreakpoint()\ndef f():\n    return x\nf()\n{ending}\n"
    arguments = command_for("script", source, tmp_path)
    assert_same(tmp_path, *arguments, stdin=commands)


@pytest.mark.parametrize("name", ["sees its own world", "raise", "interrupt"])
def test_launcher_started_as_a_module(name, tmp_path):
    """A launcher that runs under `python -m` leaves no more trace than one that is a script."""
    path = tmp_path / "program.py"
    path.write_text(dedent(PROGRAMS[name]))
    bare = finish(start([sys.executable, path, "x"], DRIVER.parent))
    ours = finish(start([sys.executable, "-m", DRIVER.stem, path, "x"], DRIVER.parent))
    assert ours == bare


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
@pytest.mark.parametrize("kind", ["script", "module", "code"])
def test_child_processes_find_main(kind, method, tmp_path):
    """Children import the program as `__mp_main__`, and classes of `__main__` travel both ways."""
    if kind == "code" and method != "fork":
        pytest.skip("-c code has no file for a child to import, in bare python too")
    arguments = command_for(kind, SPAWN, tmp_path)
    status, stdout, _ = assert_same(tmp_path, *arguments, method)
    assert status == 3
    assert ("__mp_main__" in stdout) == (method != "fork")


@pytest.mark.parametrize("source", SYNTAX_ERRORS.values(), ids=SYNTAX_ERRORS)
def test_script_that_does_not_compile(source, tmp_path):
    """A script with a syntax error gets the interpreter's message for a file, to the caret."""
    (tmp_path / "program.py").write_bytes(source)
    status, *_ = assert_same(tmp_path, "program.py")
    assert status == 1


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_source_bytes(source, tmp_path):
    """A script's bytes are read as the interpreter reads them."""
    (tmp_path / "program.py").write_bytes(source)
    status, *_ = assert_same(tmp_path, "program.py")
    assert status == 0


@pytest.mark.parametrize("code", ["x = (", "if 1:", "  x = 1", "", "x = 'é' +* 2", "x = 1\n\n1/0"])
def test_code_that_does_not_compile(code, tmp_path):
    """Code given with -c gets the interpreter's own message too."""
    assert_same(tmp_path, "-c", code)


WORLD = dedent(PROGRAMS["sees its own world"]) + "1 / 0\n"


@pytest.fixture
def tree(tmp_path):
    """A directory that holds one program in every form that python can run."""
    for name in ("sub", "package/inner", "runnable", "broken"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("program.py", "no_extension", "package/module.py", "package/inner/__main__.py"):
        (tmp_path / name).write_text(WORLD)
    (tmp_path / "runnable/__main__.py").write_text("import beside\n" + WORLD)
    (tmp_path / "runnable/beside.py").write_text("print('beside')")
    (tmp_path / "package/__init__.py").write_text("print('package', __import__('sys').argv)")
    (tmp_path / "package/inner/__init__.py").touch()
    (tmp_path / "package/relative.py").write_text("from . import module")
    (tmp_path / "package/twice.py").write_text("import package.inner")
    (tmp_path / "broken/__init__.py").write_text("import missing_module")
    (tmp_path / "broken/module.py").touch()
    (tmp_path / "early").mkdir()
    (tmp_path / "early/__init__.py").write_text("from . import module")
    (tmp_path / "early/module.py").write_text("print(__name__)")
    (tmp_path / "sub/link.py").symlink_to("../program.py")
    py_compile.compile(os.fspath(tmp_path / "program.py"), os.fspath(tmp_path / "compiled.pyc"))
    with zipfile.ZipFile(tmp_path / "archive.zip", "w") as archive:
        archive.writestr("__main__.py", WORLD)
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [
        ["program.py"],
        ["./program.py", "-m", "x"],
        ["sub/../program.py", "--", "-c"],
        ["sub/link.py"],
        ["no_extension"],
        ["compiled.pyc"],
        ["runnable"],
        ["./runnable/", "x"],
        ["archive.zip", "x"],
        ["package/module.py"],
        ["-m", "program", "-m", "x"],
        ["-m", "package.module"],
        ["-m", "package.inner"],
        ["-m", "package.relative"],
        ["-m", "broken.module"],
        ["-m", "early.module"],
        ["-m", "json.tool", "--help"],
        ["-m", "timeit", "-n1", "-r1", "1/0"],
        ["-m", "pdb", "-c", "c", "-c", "q", "sub/link.py"],
        ["-c", WORLD, "-c", "x"],
        # Nothing to run: the driver prints the message of UsageError.
        ["missing.py"],
        ["missing/program.py"],
        ["program.py/x.py"],
        ["sub"],
        ["-m", "missing"],
        ["-m", "missing.module"],
        ["-m", "sub"],
        ["-m", "package"],
        ["-m", "package.missing"],
        ["-m", "program.py"],
        ["-m", ".program"],
        ["-m", "sys"],
        ["-m", "builtins.x"],
    ],
    ids=lambda arguments: " ".join(arguments)[:40].partition("\n")[0],
)
def test_every_form_of_target(arguments, tree):
    """Scripts, links, compiled files, directories, archives and modules are found as bare."""
    assert_same(tree, *arguments)
    if (tree / arguments[0]).exists():
        assert_same(tree / "sub", os.path.join("..", arguments[0]), *arguments[1:])
        assert_same("/", tree / arguments[0], *arguments[1:])


@pytest.mark.parametrize(
    "arguments", [["program.py"], ["-m", "program"], ["-c", WORLD], ["runnable"]]
)
@pytest.mark.parametrize("flag", ["-P", "-I", "-S", "-O", "-Werror", "-Xdev"])
def test_flags_of_the_interpreter(flag, arguments, tree):
    """Python's own options mean what they mean bare; -P and -I keep the directory off sys.path."""
    assert_same(tree, *arguments, flags=[flag])


@pytest.mark.parametrize(
    "arguments", [["program.py"], ["-m", "program"], ["-c", WORLD], ["runnable"]]
)
def test_safe_path_variable(arguments, tree):
    """PYTHONSAFEPATH keeps the program's directory off sys.path."""
    assert_same(tree, *arguments, env={"PYTHONSAFEPATH": "1"})


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read every file")
def test_unreadable_file(tmp_path):
    """A file that may not be read is refused with status 2."""
    (tmp_path / "program.py").touch(mode=0o000)
    assert_same(tmp_path, "program.py")


def test_broken_pipe(tmp_path):
    """A reader that goes away costs the program what it costs bare: a message and status 120."""
    source = "import sys\nsys.stdin.read()\nprint('x')\n"
    (tmp_path / "program.py").write_text(source)
    seen = []
    for command in ([sys.executable], [sys.executable, DRIVER]):
        with subprocess.Popen(
            [*command, "program.py"],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=BARE_ENVIRONMENT,
        ) as process:
            process.stdout.close()
            process.stdin.close()
            seen.append((process.stderr.read(), process.wait()))
    assert seen[0] == seen[1]
    assert seen[0][1] == 120


def test_recursion_has_the_same_room(tmp_path):
    """A program can recurse to within ten frames of the depth it has bare."""
    code = (
        "def f(n):\n try: return f(n + 1)\n except RecursionError: return n\n"
        "print(f(0), __import__('sys').getrecursionlimit())"
    )
    _, bare, _ = finish(bare_python(["-c", code], tmp_path))
    _, ours, _ = finish(launched(["-c", code], tmp_path))
    (bare_depth, bare_limit), (our_depth, our_limit) = bare.split(), ours.split()
    assert our_limit == bare_limit
    assert 0 <= int(bare_depth) - int(our_depth) <= 10


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("print()", "finished 0 NoneType"),
        ("import sys; sys.exit(3)", "finished 3 SystemExit"),
        ("import sys; sys.exit(-1)", "finished 255 SystemExit"),
        ("import sys; sys.exit(2**100)", "finished 255 SystemExit"),
        ("import sys; sys.exit('x')", "finished 1 SystemExit"),
        ("1 / 0", "raised 1 ZeroDivisionError"),
        ("x = (", "raised 1 SyntaxError"),
        (
            "import sys; sys.excepthook = lambda *_: sys.exit(4); 1 / 0",
            "raised 4 ZeroDivisionError",
        ),
        ("raise KeyboardInterrupt", "interrupted 130 KeyboardInterrupt"),
        ("class K(KeyboardInterrupt): pass\nraise K", "raised 1 K"),
    ],
)
@pytest.mark.parametrize("kind", ["script", "module", "code"])
def test_report_is_called_once(kind, source, line, tmp_path):
    """`report` gets one Outcome: how the program ended, with which status and which exception."""
    arguments = command_for(kind, source, tmp_path)
    path = tmp_path / "report"
    finish(launched(arguments, tmp_path, env={"DRIVER_REPORT": str(path)}))
    assert path.read_text() == line + "\n"


def test_no_report_when_nothing_runs(tmp_path):
    """`report` is not called when there is no program."""
    for arguments in (["missing.py"], ["-m", "missing"], ["."]):
        path = tmp_path / "report"
        finish(launched(arguments, tmp_path, env={"DRIVER_REPORT": str(path)}))
        assert not path.exists()


def test_report_comes_after_the_traceback_and_before_shutdown(tmp_path):
    """The order is: the program's streams and traceback, the report, its threads, atexit."""
    source = dedent("""
        import atexit, threading, time
        atexit.register(print, 'atexit')
        threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()
        print('program')
        1 / 0
    """)
    (tmp_path / "program.py").write_text(source)
    env = {"DRIVER_FAULT": "sys.stderr.write('report\\n')"}
    status, output, _ = finish(launched(["program.py"], tmp_path, merged=True, env=env))
    kept = [line for line in output.splitlines() if line[0] not in "T "]
    wanted = ["program", "ZeroDivisionError: division by zero", "report", "thread", "atexit"]
    assert (status, kept) == (1, wanted)


@pytest.mark.parametrize(
    ("source", "status"),
    [("", 70), ("import sys; sys.exit(3)", 3), ("1 / 0", 1), ("raise KeyboardInterrupt", -2)],
)
@pytest.mark.parametrize("fault", ["1 / 0", "sys.exit(5)", "exec('raise KeyboardInterrupt')"])
def test_report_that_fails(fault, source, status, tmp_path):
    """A fault in `report` is one line on stderr, and a status of 70 only in place of 0."""
    bare = finish(bare_python(["-c", source], tmp_path))
    ours = finish(launched(["-c", source], tmp_path, env={"DRIVER_FAULT": fault}))
    assert ours[:2] == (status, "")
    line = ours[2].removeprefix(bare[2])
    assert line.startswith("onegraph: the report failed: ")
    assert line.endswith(" (ONEGRAPH_DEBUG=1 shows where)\n")
    assert line.count("\n") == 1


def test_report_that_fails_under_debug(tmp_path):
    """With ONEGRAPH_DEBUG=1 the fault's whole traceback comes before the line."""
    env = {"DRIVER_FAULT": "1 / 0", "ONEGRAPH_DEBUG": "1"}
    status, _, stderr = finish(launched(["-c", ""], tmp_path, env=env))
    assert status == 70
    assert stderr.startswith("Traceback (most recent call last):\n")
    last = "\nonegraph: the report failed: ZeroDivisionError: division by zero\n"
    assert stderr.endswith(last)


def test_report_can_show_code(tmp_path):
    """While `report` runs, linecache has the lines of -c code."""
    show = "print(__import__('linecache').getline('<string>', 2), end='')"
    started = launched(["-c", "x = 1\ny = 2  # here\n"], tmp_path, env={"DRIVER_FAULT": show})
    assert finish(started) == (0, "y = 2  # here\n", "")


def test_interrupt_dies_of_the_signal(tmp_path):
    """An uncaught KeyboardInterrupt kills the process by SIGINT, after its exit handlers."""
    code = "import atexit; atexit.register(print, 'bye'); raise KeyboardInterrupt"
    status, stdout, _ = assert_same(tmp_path, "-c", code)
    assert (status, stdout) == (-2, "bye\n")


def test_importing_launch_is_light():
    """The module brings nothing heavy, and nothing outside the standard library."""
    source = (Path(__file__).parents[2] / "src/onegraph/cli/launch.py").read_text()
    imported = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Import):
            imported.update(alias.name.partition(".")[0] for alias in node.names)
    assert imported <= sys.stdlib_module_names
    assert not imported & {"asyncio", "multiprocessing", "traceback", "unittest", "zipfile"}


def outer(call):
    """Call, from a frame with a file name of its own."""
    code = compile("def outer(call): call()", "ours", "exec")
    namespace = {}
    exec(code, namespace)
    return namespace["outer"](call)


def frame_files(traceback: TracebackType | None):
    """Return the names of the files of a traceback's frames."""
    files = []
    while traceback is not None:
        files.append(Path(traceback.tb_frame.f_code.co_filename).name)
        traceback = traceback.tb_next
    return files


@pytest.mark.parametrize("own", [{"ours"}, {"test_launch.py"}, {"ours", "test_launch.py"}, set()])
def test_strip_frames_takes_out_ours_alone(own):
    """Frames of ours go wherever they stand, and the others keep their order."""
    try:
        outer(lambda: outer(lambda: 1 / 0))
    except ZeroDivisionError as error:
        traceback = error.__traceback__
    before = frame_files(traceback)
    stripped = strip_frames(traceback, lambda name: Path(name).name in own)
    assert before.count("ours") == 2
    assert frame_files(stripped) == [name for name in before if name not in own]


def test_strip_frames_of_nothing():
    """No traceback stays no traceback."""
    assert strip_frames(None, lambda _: True) is None
