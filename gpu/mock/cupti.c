/* A stand-in for libcupti.so.13. */
int cuptiGetVersion(unsigned *version) { *version = VERSION; return RESULT; }
