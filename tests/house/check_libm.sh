#!/bin/sh
# Nothing that reaches a token calls libm's transcendental functions: they may differ by CPU and by C library. base/math/fmath.h
# has
# our own. (sqrt, fma, floor, ceil and their kin are exact or correctly rounded everywhere, and may be used.) Templates are
# texts: Jinja's ** and round stay with libm.
set -eu
cd "$(dirname "$0")/../.."
names='exp|exp2|exp10|expm1|log|log2|log10|log1p|logb|pow|cbrt|hypot|sin|cos|tan|sincos|asin|acos|atan|atan2|sinh|cosh|tanh'
names="$names|asinh|acosh|atanh|erf|erfc|tgamma|lgamma"
bad=0
for file in $(find src/base src/quant src/model src/backend src/device src/cache src/engine src/draw src/sample \
    src/draft src/speculate \
    -name '*.c' -o -name '*.h' -o -name '*.inc' -o -name '*.cu'); do
    # comments away, lines kept
    if sed -e 's|/\*.*\*/||' -e '/\/\*/,/\*\//s/.*//' "$file" |
        grep -n -E "(^|[^a-zA-Z0-9_.>])($names)[fl]?[[:space:]]*\("; then
        echo "$file calls libm; base/math/fmath.h has ae_exp, ae_log, ae_pow, ae_sincos"
        bad=1
    fi
done
exit $bad
