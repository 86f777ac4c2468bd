// The one translation unit of a slot's code object. HIPPIHX_DOT says whether the slot has packed fp16 dot products; the
// compiler refuses them elsewhere, so the DOT kernels are left out there.
#include "common/device.h"

#if HIPPIHX_DOT
#include "attention/fa_fdot2/entries.h"
#endif
