/* A Python extension: leak(n) leaves a block of n bytes, clean(n) frees it again. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdlib.h>

static void *volatile last;

__attribute__((noinline)) void extension_leaks(size_t n) { last = malloc(n); }

static PyObject *leak(PyObject *module, PyObject *argument) {
    size_t n = PyLong_AsSize_t(argument);
    (void)module;
    if (PyErr_Occurred())
        return NULL;
    extension_leaks(n);
    Py_RETURN_NONE;
}

static PyObject *clean(PyObject *module, PyObject *argument) {
    size_t n = PyLong_AsSize_t(argument);
    (void)module;
    if (PyErr_Occurred())
        return NULL;
    last = malloc(n);
    free(last);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"leak", leak, METH_O, "Leaves a block of n bytes."},
    {"clean", clean, METH_O, "Allocates n bytes and frees them."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "leaky_extension", NULL, -1, methods,
                                    NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_leaky_extension(void) { return PyModule_Create(&module); }
