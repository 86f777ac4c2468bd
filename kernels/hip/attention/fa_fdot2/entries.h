// The kernels of attention.fa_fdot2 under their plain names. One argument list serves all: the recipe packs it once.
#pragma once

#include "combine.h"
#include "decode.h"
#include "prefill.h"

#define FA_ENTRY(name, body)                 \
    HX_KERNEL name(FA_PARAMETERS) {          \
        const FaArgs arguments = FA_GATHER;  \
        body(arguments);                     \
    }

FA_ENTRY(hippihx_fa_fdot2_decode_d128, fa_decode<128>)
FA_ENTRY(hippihx_fa_fdot2_decode_d256, fa_decode<256>)
FA_ENTRY(hippihx_fa_fdot2_prefill_d128, fa_prefill<128>)
FA_ENTRY(hippihx_fa_fdot2_prefill_d256, fa_prefill<256>)
FA_ENTRY(hippihx_fa_fdot2_combine_d128, fa_combine<128>)
FA_ENTRY(hippihx_fa_fdot2_combine_d256, fa_combine<256>)
