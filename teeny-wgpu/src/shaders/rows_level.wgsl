// One level of a row program: the values at each element of the row, and their folds.
//
// Naive: for q in place..length by TEAM { acc = combine(acc, value(q)); }. Here blocks of 64
// elements are summed first, so that rounding errors grow with the number of blocks; where the row
// stays in registers, the loop is unrolled.
#if folds
    var acc{{level}} = neutral{{level}}();
#endif
#if held
#for g in 0..count
{{variables[g]}}
    if q{{g}} < length {
{{elements[g]}}
#if folds
        acc{{level}} = combine{{level}}(acc{{level}}, {{folded[g]}});
#endif
{{stores[g]}}
    }
#endfor
#else
#if folds
    for (var q = place; q < length;) {
        var block = neutral{{level}}();
        for (var k = 0; k < {{64 / lanes}} && q < length; k++) {
            let at = along_addresses(q * LANES);
{{elements[0]}}
            block = combine{{level}}(block, {{folded[0]}});
{{stores[0]}}
            q += TEAM;
        }
        acc{{level}} = combine{{level}}(acc{{level}}, block);
    }
#else
    for (var q = place; q < length; q += TEAM) {
        let at = along_addresses(q * LANES);
{{elements[0]}}
{{stores[0]}}
    }
#endif
#endif
#if folds
    let whole{{level}} = fold{{level}}(thread, folds{{level}}(acc{{level}}));
#endif
