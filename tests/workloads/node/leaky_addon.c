/* A Node.js addon: leak(n) leaves a block of n bytes, clean(n) frees it again. */
#include <node_api.h>
#include <stdlib.h>

static void *volatile last;

__attribute__((noinline)) void addon_leaks(size_t n) { last = malloc(n); }

static size_t size_of_call(napi_env env, napi_callback_info info) {
    size_t count = 1;
    napi_value argument;
    uint32_t size = 0;
    napi_get_cb_info(env, info, &count, &argument, NULL, NULL);
    napi_get_value_uint32(env, argument, &size);
    return size;
}

static napi_value leak(napi_env env, napi_callback_info info) {
    addon_leaks(size_of_call(env, info));
    return NULL;
}

static napi_value clean(napi_env env, napi_callback_info info) {
    last = malloc(size_of_call(env, info));
    free(last);
    return NULL;
}

NAPI_MODULE_INIT() {
    napi_value function;
    napi_create_function(env, "leak", NAPI_AUTO_LENGTH, leak, NULL, &function);
    napi_set_named_property(env, exports, "leak", function);
    napi_create_function(env, "clean", NAPI_AUTO_LENGTH, clean, NULL, &function);
    napi_set_named_property(env, exports, "clean", function);
    return exports;
}
