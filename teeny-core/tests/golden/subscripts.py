"""subscripts.json: what NumPy's brackets read and write, by the expression itself.

`x` is 0..120 in the shape (2, 3, 4, 5), `v` is 0..6, `m` is a mask, `e` is empty; everything of int64. Each row is an expression and its result; an
assignment's row has the changed array. The test knows the same expressions in Rust and looks them up.
"""

import json
import pathlib
import platform

import numpy as np

x, v, e = np.arange(120).reshape(2, 3, 4, 5), np.arange(6), np.zeros((3, 0), np.int64)
m = x % 3 == 0
rows, columns = np.array([0, 1, 1]), np.array([2, 0, -1])
grid = np.array([[0, 1], [1, 0]])
names = {"np": np, "x": x, "v": v, "e": e, "m": m, "rows": rows, "columns": columns, "grid": grid, "none": np.array([], np.int64)}

READ = """
v[2]; v[-1]; v[1:4]; v[-3:]; v[:-2]; v[1:-1]; v[::2]; v[1::2]; v[::-1]; v[::-2]; v[4:1:-1]; v[7:9]; v[4:2]; v[None]; v[:, None]; v[...]; v[..., None]
v[[0, 2, 2, -1]]; v[[True, False, True, False, False, True]]; v[grid]; v[none]; v[v > 2]; v[v > 9]; v[np.array(3)]; v[np.array(True)]; v[np.array(False)]
x[1]; x[1, 2]; x[1, 2, 3, 4]; x[..., 1]; x[1, ..., 1]; x[:, 1]; x[:, :, 1:3]; x[0, :, -2:, ::2]; x[::-1, 1:, ::-2, 1:4]; x[..., None, 0]; x[None, :, None, 1]
x[0, ..., None, 1:2, None]; x[:, 1:1]; x[..., :]; x[-1, -1, -1, -1]; x[..., 1, 2, 3, 4 - 5]; x[:, -2:, ..., -3:-1]; x[1:, ...]; x[()]
x[rows]; x[rows, columns]; x[:, columns]; x[..., columns]; x[:, :, rows, columns]; x[rows, :, columns]; x[rows, ..., columns]; x[:, rows, :, columns]
x[rows, 1]; x[rows, :, 1]; x[1, rows]; x[1, :, rows]; x[:, 1, rows]; x[0, rows, columns]; x[:, 1, :, rows]; x[grid]; x[grid, rows[:2]]; x[grid, :, rows[:2]]
x[rows[:, None], columns]; x[:, rows[:, None], columns]; x[rows, None, columns]; x[None, rows]; x[rows, None]; x[grid, ..., None]; x[grid[:, None], 1:, columns[:2]]
x[rows, columns, rows]; x[rows, columns, rows, columns]; x[none]; x[:, none]; x[rows, 1:, ::2]; x[1:, rows, ..., ::-1]; x[rows, 1, :, columns]; x[rows, ..., 1]
x[m]; x[m[0, 0, 0, 0] ^ m]; x[m[:, :, :, 0]]; x[m[:, 0, 0, 0]]; x[:, m[0, :, :, 0]]; x[..., m[0, 0]]; x[:, m[0, :, 0, 0], 1]; x[m[:, :, 0, 0], 1:, ::2]
x[:, m[0, :, :, 0], 1]; x[m[:, 0, 0, 0], ..., m[0, 0, 0]]; x[rows[:2], m[0, :, 0, 0][:3]]; x[0, m[0, :, :, 1]]; x[1, ..., [True, False, True, False, True]]
x[np.array(True)]; x[np.array(False), 1]; x[:, np.array(1)]; x[np.array(-1), :, columns]; e[[0, 2]]; e[:, :0]; e[none]; e[1:2]; x[rows, ..., columns, None]
"""

WRITE = """
v[2] = 70; v[1:4] = 71; v[::-2] = np.arange(3); v[[0, 2, 2]] = np.array([7, 8, 9]); v[v > 2] = -1; v[v > 2] = np.array([5, 6, 7]); v[none] = 3; v[...] = 4
x[1] = 0; x[..., 1] = 7; x[:, 1, ::2] = np.arange(5); x[0, :, -2:, ::2] = np.arange(3); x[1:1] = 9; x[1, 2, 3, 4] = -1; x[0, 0] = np.ones((1, 1, 5), np.int64)
x[rows, columns] = np.arange(3).reshape(3, 1, 1); x[:, columns] = np.arange(3).reshape(3, 1, 1); x[rows, :, columns] = np.arange(5); x[rows, 1] = 6
x[1, rows] = np.arange(4)[:, None]; x[m] = 0; x[m] = np.arange(40); x[m[:, :, 0, 0]] = np.arange(5); x[:, m[0, :, :, 0]] = np.arange(5)
x[:, m[0, :, :, 0], 1] = np.arange(4); x[1, ..., columns] = np.arange(4); x[..., ::-1, columns] = np.arange(3); x[m[:, :, :, 0]] = np.arange(8)[:, None]
x[grid, rows[:2]] = -grid[..., None, None]; x[0, 1:, 2, [0, 0, 4]] = np.arange(3)[:, None]; x[:, -1, [3, 1]] = np.arange(10).reshape(2, 5)
x[np.array(True)] = 1; x[np.array(False)] = 1; x[1, m[0, :, 0, 0]] = 3
"""


def lines(text):
    return [part.strip() for part in text.replace("\n", ";").split(";") if part.strip()]


def result(y):
    return {"shape": list(np.shape(y)), "data": np.asarray(y).reshape(-1).tolist()}


def main():
    cases = [{"expression": text, **result(eval(text, names))} for text in lines(READ)]
    for text in lines(WRITE):
        own = {name: np.copy(value) if isinstance(value, np.ndarray) else value for name, value in names.items()}
        exec(text, own)
        cases.append({"expression": text, **result(own[text[0]])})
    path = pathlib.Path(__file__).with_name("subscripts.json")
    versions = json.dumps({"numpy": np.__version__, "python": platform.python_version()})
    body = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    path.write_text(f'{{"versions":{versions},\n"cases":[\n{body}]}}\n')
    print(f"{len(cases)} cases, {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
