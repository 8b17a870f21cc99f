"""``python -m bisect_onnx``: the command line."""

from bisect_onnx.cli.app import main

main()
