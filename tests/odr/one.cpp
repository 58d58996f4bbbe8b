#include "whole_library.hpp"

bool one() { return whole_library_works<float>() && whole_library_works<double>(); }
