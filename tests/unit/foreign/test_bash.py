"""Shell scripts come to what bash makes of them, and nothing in them is run."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from pathlib import Path

import pytest

from dsforge.base.errors import DsforgeError
from dsforge.foreign.bash.launch import find_launch
from dsforge.foreign.bash.script import read_script

SCRIPT = r"""
A=2 B="x y"
N=$(( A * (3 + 4) % 5 - 1 ))
EMPTY=
LIST=(--one $A "two words" 'sq $A' # a remark
  --three\ four)
LIST+=(--tail=$N)
TEXT=" --first ${A} \
   --second ${B}"
TEXT="$TEXT --third ${EMPTY:-fallback}"
TEXT+=" --fourth ${A:+set}"
if [[ $A -eq 2 ]] && [ "$B" != z ]; then TEXT+=" --yes"; else TEXT+=" --no"; fi
[ -z "$EMPTY" ] && TEXT+=" --empty"
[ -n "$EMPTY" ] || TEXT+=" --still-empty"
COUNT=${#LIST[@]}
python show.py "${LIST[@]}" $TEXT "$TEXT" "" $EMPTY ${LIST[1]} pre${A}post $'a\tb' "${B}"'"$x"' \$A $COUNT
"""


def words(text: str) -> list[str]:
    launch = find_launch(read_script(text, "run.sh"))
    return [str(word) for word in launch.arguments]


def test_words_are_those_that_bash_hands_over(tmp_path: Path):
    bash = shutil.which("bash")
    assert bash is not None
    show = tmp_path / "python"
    show.write_text('#!/bin/sh\nshift\nfor word in "$@"; do printf "%s\\0" "$word"; done\n')
    show.chmod(0o755)
    done = subprocess.run(
        [bash, "-c", SCRIPT],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
    )
    assert words(SCRIPT) == done.stdout.split("\0")[:-1]


def test_nothing_is_run(tmp_path: Path):
    victim = tmp_path / "made"
    text = f"X=$(touch {victim})\ntouch {victim}\n: > {victim}\npython t.py --x $X `touch {victim}`\n"
    assert words(text) == ["--x", f"$(touch {victim})", f"`touch {victim}`"]
    assert not victim.exists()


def test_a_word_keeps_the_place_where_it_is_written():
    script = read_script('A=(--lr\n  1e-4)\nX="--x $Y"\ntorchrun t.py "${A[@]}" $X\n', "run.sh")
    launch = find_launch(script)
    places = [str(script.lines.place(word.at)) for word in launch.arguments]
    assert places == ["run.sh:1:4", "run.sh:2:3", "run.sh:3:4", "run.sh:3:8"]
    assert [word.is_open for word in launch.arguments] == [False, False, False, True]


def test_files_that_the_script_writes():
    text = (
        'F=$D/a.json\ncat <<EOT > $F\n{"b": $N, "c": "\\$x"}\nEOT\n'
        "cat > b.json <<'EOT'\n{$N}\nEOT\ntee c.json <<EOT\n1\nEOT\necho '{}' > d.json\n"
    )
    files = {name: str(text.for_json()) for name, text in read_script(text, "run.sh").files.items()}
    assert files == {
        "$D/a.json": '{"b": ${N}, "c": "$x"}\n',
        "b.json": "{$N}\n",
        "c.json": "1\n",
        "d.json": "{}",
    }


def test_what_is_not_read_is_named_with_its_place():
    text = "for i in 1 2; do\n X=$i\ndone\nsource env.sh\nif [ -f x ]; then Y=1; fi\n"
    text += "f() {\n :\n}\npython t.py ${Z:-3}\n"
    script = read_script(text, "run.sh")
    assert [(str(script.lines.place(at)), why) for _, at, why in script.unread] == [
        ("run.sh:1:1", "a loop: what it does is read once, its variable is open"),
        ("run.sh:4:1", "another file is read here; its variables are not known"),
        ("run.sh:5:1", "a condition that is known only where the script runs"),
        ("run.sh:9:13", "`Z` is not set in the script: its default is taken"),
    ]
    assert [str(word) for word in find_launch(script).arguments] == ["3"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('f() { python t.py "$@" $2; }\nf --a b\npython t.py\n', ["--a", "b", "b"]),
        ("f() {\n cat > a.json <<E\n{}\nE\n}\nf\npython t.py --x\n", ["--x"]),
        ("until torchrun t.py --x; do sleep 1; done\n", ["--x"]),
        ("while true; do python t.py --x && break; done\n", ["--x"]),
        ("for f in a; do python t.py --x $f; done\n", ["--x", "a"]),
        ("S=7b\ncase $S in\n 1b) L=1;;\n 7b|8b) L=32;;\n *) L=4;;\nesac\npython t.py $L\n", ["32"]),
        ("A=1\nunset A\npython t.py --x $A\n", ["--x", "$A"]),
        ("nohup env A=1 numactl -N 0 torchrun t.py --x > log &\n", ["--x"]),
    ],
)
def test_functions_loops_and_choices_are_followed(text: str, found: list[str]):
    assert [str(word) for word in find_launch(read_script(text, "run.sh")).arguments] == found


@pytest.mark.parametrize(
    "text",
    [
        "X=1\nif [ -f a ]; then X=2; fi\npython t.py $X\n",
        "X=1\ncase $1 in\n a) X=2;;\nesac\npython t.py $X\n",
        "X=1\n[ -f a ] && X=2\npython t.py $X\n",
        "X=1\n(( X++ ))\npython t.py $X\n",
        "X=1\nlet X=X+1\npython t.py $X\n",
        "X=1\nread X <<< 4\npython t.py $X\n",
        "for X in 1 2; do\n python t.py $X\ndone\n",
        "python t.py /d/{a,b}\n",
        "python t.py /d/*.bin\n",
    ],
)
def test_what_may_be_otherwise_where_the_script_runs_is_open(text: str):
    (word,) = find_launch(read_script(text, "run.sh")).arguments
    assert word.is_open


def test_a_line_that_a_comment_cuts_off_is_a_command_of_its_own():
    text = "torchrun t.py \\\n --a 1 \\\n # --b 2 \\\n --c 3\n"
    script = read_script(text, "run.sh")
    assert [str(word) for word in find_launch(script).arguments] == ["--a", "1"]
    assert [str(script.lines.place(word.at)) for word in script.astray] == ["run.sh:4:2"]


@pytest.mark.parametrize(
    "text",
    [
        "A=(x x x x x x x x)\n" + 'A=("${A[@]}" "${A[@]}" "${A[@]}" "${A[@]}")\n' * 14,
        "f() { g; g; g; }\ng() { f; f; f; }\nf\n",
        "f() { f; f; }\nf\n",
        "X=--5\nY=$(( X * 2 ))\n[ $X -gt 1 ] && Z=1\n",
        "for (( i = 0; i < 3; i++ )); do :; done\n",
    ],
)
def test_hostile_scripts_end(text: str):
    with contextlib.suppress(DsforgeError):
        find_launch(read_script(text + "python t.py\n", "run.sh"))


@pytest.mark.parametrize(
    ("line", "starter", "told"),
    [
        ("torchrun --nproc_per_node=8 --nnodes 2 t.py --x", "torchrun", {"ranks": 8, "hosts": 2}),
        ("deepspeed --num_gpus 4 --num_nodes=3 t.py --x", "deepspeed", {"ranks": 4, "hosts": 3}),
        ("python3 -m torch.distributed.launch --nproc_per_node 2 t.py --x", "python", {"ranks": 2}),
        ("srun -N 2 --ntasks-per-node=4 python -u t.py --x", "srun", {"ranks": 4, "hosts": 2}),
        ("accelerate launch --num_processes 8 --multi_gpu t.py --x", "accelerate", {"world": 8}),
        ('srun bash -c "torchrun --nproc-per-node 8 t.py --x"', "torchrun", {"ranks": 8}),
        ('C="deepspeed t.py --x"; eval $C', "deepspeed", {}),
        ("A=1 nohup; B=2 torchrun t.py --x > log 2>&1 &", "torchrun", {}),
    ],
)
def test_command_lines_that_start_a_training(line: str, starter: str, told: dict[str, int]):
    launch = find_launch(read_script(line + "\n", "run.sh"))
    assert (launch.started_by, str(launch.program)) == (starter, "t.py")
    assert [str(word) for word in launch.arguments] == ["--x"]
    assert {name: launch.number(name) for name in launch.told} == told


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("echo nothing\n", "DSF694", "run.sh"),
        ("A=(1 2\npython t.py\n", "DSF692", "run.sh:1:1"),
        ("A=aaaaaaaaaaaaaaaa\n" + "A=$A$A$A$A\n" * 12 + "python t.py\n", "DSF693", "run.sh:8:3"),
    ],
)
def test_what_cannot_be_read(text: str, code: str, place: str):
    with pytest.raises(DsforgeError) as caught:
        find_launch(read_script(text, "run.sh"))
    assert (caught.value.code, str(caught.value.place)) == (code, place)


def test_slurm_sets_variables_by_the_jobs_options():
    text = "#SBATCH --nodes=4\n#SBATCH -n 8\npython t.py $SLURM_NNODES $(( SLURM_NTASKS / 2 ))\n"
    assert words(text) == ["4", "4"]
