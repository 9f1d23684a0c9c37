/* A stand-in for libnvperf_host.so, which has to lie beside libcupti.so.13 and is opened before it. */
int elastico_mock_nvperf_host(void) { return 1; }
