# Cross building for 64-bit ARM on Debian or Ubuntu, with the arm64 libraries of multiarch:
#   cmake -S . -B build-arm64 -DCMAKE_TOOLCHAIN_FILE=cmake/aarch64-linux-gnu.cmake
# Programs run under qemu-user, tests too (scripts/check-arm64.sh does it all).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(ENV{PKG_CONFIG_LIBDIR} /usr/lib/aarch64-linux-gnu/pkgconfig:/usr/share/pkgconfig)
find_program(AERIE_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
if(AERIE_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${AERIE_QEMU} -cpu max)
endif()
