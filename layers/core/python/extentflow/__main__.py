"""`python -m extentflow`: the command line of the interpreter that has the library."""

from extentflow.cli import main

if __name__ == "__main__":
    main()
