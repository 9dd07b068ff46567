"""Kills a process at one of its renames. Imported by every process below the one that is tortured."""

import os
import signal


def install(folder, counter, number, when, whom):
    """Counts the renames within `folder`, in the size of the file `counter`, and kills at one of them.

    `when` is before or after the rename; `whom` is the process that renames, or all with the one at the top.
    """
    folder = os.path.realpath(folder)

    def die():
        if whom == "all":
            os.kill(int(os.environ["TORTURE_TOP"]), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

    def counting(rename):
        def counted(source, target, **options):
            here = os.path.realpath(os.path.dirname(os.fspath(target)) or ".")
            if not f"{here}/".startswith(f"{folder}/"):
                return rename(source, target, **options)
            descriptor = os.open(counter, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            os.write(descriptor, b".")
            due = os.fstat(descriptor).st_size == number
            os.close(descriptor)
            if due and when == "before":
                die()
            done = rename(source, target, **options)
            if due:
                die()
            return done

        return counted

    os.replace, os.rename = counting(os.replace), counting(os.rename)


def install_from_environment():
    given = os.environ.get("TORTURE_RENAMES")
    if given:
        folder, counter, number, when, whom = given.split("|")
        install(folder, counter, int(number), when, whom)
