// A comment.
const N = {{n}}u; // {{not a hole}}
#if wide
let x: {{type}};
#else
let y;
#endif
#if !wide
let z;
#endif
#for i in 0..n / 2
#for j in reversed 0..2
s{{i}}_{{j}} = {{names[j]}}[{{(i + 1) * 3 % 4}}];
#endfor
#endfor
