bool one();
bool two();

int main() { return one() && two() ? 0 : 1; }
