# Sourced by scripts/demo, scripts/test, scripts/check and others: makes .venv hold the package, in the tested versions.
#
#   . scripts/venv.sh
#   ensure_venv demo|test|dev|bench
#
# Works from the repository's root. Does nothing when .venv already holds what was asked for: a stamp in it
# remembers for which pyproject.toml, constraints and folder it was filled. Progress goes to stderr.

find_python() {
    local candidate
    # The version that is tested comes first; PYTHON names another.
    for candidate in ${PYTHON:-} python3.11 python3.12 python3.13 python3.14 python3 python; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "No Python 3.11 or later was found. Install one, or name it: PYTHON=/path/to/python3.11 $0" >&2
    return 1
}

stamp_text() {
    echo "$PWD $(cat pyproject.toml scripts/constraints.txt | cksum)"
}

stamped() {
    [ "$(cat ".venv/bisect-onnx-$1.stamp" 2>/dev/null)" = "$(stamp_text)" ]
}

pip_install() {
    .venv/bin/python -m pip install --quiet --quiet --no-input --disable-pip-version-check --progress-bar off \
        --constraint scripts/constraints.txt "$@"
}

ensure_venv() {
    local level=$1 target python
    case $level in
        demo) stamped demo || stamped test || stamped dev || stamped bench || target=. ;;
        test) stamped test || stamped dev || stamped bench || target='.[test]' ;;
        dev) stamped dev || target='.[dev]' ;;
        bench) stamped bench || target='.[bench]' ;;
        *)
            echo "ensure_venv: expected demo, test, dev or bench, got '$level'" >&2
            return 2
            ;;
    esac
    [ -n "${target:-}" ] || return 0

    if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        python=$(find_python) || return
        echo "Making .venv with $("$python" --version) ..." >&2
        "$python" -m venv --clear .venv || return
    fi
    echo "Installing into .venv (the first time, torch and ONNX Runtime take some minutes to arrive) ..." >&2
    # torch on its own, so that its pinned version is there before anything else asks for "some torch".
    pip_install torch || return
    pip_install --editable "$target" || return
    stamp_text >".venv/bisect-onnx-$level.stamp"
}
