#include "whole_library.hpp"

int main() { return whole_library_works<float>() ? 0 : 1; }
