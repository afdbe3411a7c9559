/* hold.h - keeps the device under test open while a program runs. Models that are opened one after another then share what
 * belongs to the device, in particular the shaders that Vulkan compiles, which take software Vulkan seconds. */
#ifndef AE_TESTS_HOLD_H
#define AE_TESTS_HOLD_H

/* Opens a device, named as for ae_backend_open (NULL: as AERIE_BACKEND says), and closes it when the program ends. Later calls
 * do nothing, nor do those for CPUs, nor if the device cannot be opened. */
void test_hold_device(const char *name);

#endif
