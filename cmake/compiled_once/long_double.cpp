#include "compiled_once.hpp"

EVENKEEL_ALL(, long double)
