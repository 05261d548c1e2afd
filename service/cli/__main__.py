"""`python -m service.cli`: the command, where no script is installed."""

from service.cli.app import app

if __name__ == "__main__":
    app(prog_name="electra")
