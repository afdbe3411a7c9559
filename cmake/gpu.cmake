# Kernels of the GPU backends (src/backend/gpu/kernels and the folders in it): for the emulation, and by nvcc for CUDA.
#
#   AERIE_EMU         backend "emu": the kernels on the host, for tests
#   AERIE_CUDA        backend "cuda": needs nvcc to build, and only the driver's library to run
#   AERIE_CUDA_ARCHS  compute capabilities; the last one is kept as PTX, too, for chips to come
file(GLOB_RECURSE AERIE_KERNELS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/gpu/kernels/*.cu)
file(GLOB_RECURSE AERIE_EMU_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/gpu/emu/*.c)
file(GLOB_RECURSE AERIE_GPU_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/gpu/*.c
     ${PROJECT_SOURCE_DIR}/src/device/*.c)
set(AERIE_LIBRARIES aerie_static aerie_shared aerie_portable_shared)

# ---- The emulation ------------------------------------------------------------------------------------------------------
# The C compiler's own C++ front end compiles the kernels. No target has CXX for a language, so gcc links everything, without
# a C++ runtime; none is needed.
include(CheckCSourceCompiles)
set(AERIE_EMU_FLAGS -xc++ -std=c++17 -fno-exceptions -fno-rtti -Wno-unknown-pragmas)
if(AERIE_TESTS)
  list(JOIN AERIE_EMU_FLAGS " " CMAKE_REQUIRED_FLAGS)
  set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY) # nothing is linked: -xc++ would take the object for a source
  set(standard ${CMAKE_C_STANDARD})
  unset(CMAKE_C_STANDARD) # its flag is none of C++'s
  check_c_source_compiles("#include <math.h>
    template <int n> static float f(float x) { return sqrtf(x) * n; }
    int main() { return (int)f<2>(1); }" AERIE_HAS_CXX)
  set(CMAKE_C_STANDARD ${standard})
  unset(CMAKE_REQUIRED_FLAGS)
  unset(CMAKE_TRY_COMPILE_TARGET_TYPE)
endif()
if(AERIE_TESTS AND AERIE_HAS_CXX)
  set(emu_default ON)
else()
  set(emu_default OFF)
endif()
option(AERIE_EMU "Build the emulation of GPUs, for tests" ${emu_default})

# Objects of kernels for the emulation.
function(aerie_emu_kernels target)
  # -O1 takes a third of the time to compile (105 to 36 s of CPU for all, Zen 3); laws/device_laws takes 6.8 s either way
  set(flags ${AERIE_EMU_FLAGS} -O1 $<$<BOOL:${AERIE_FMA}>:-mfma>)
  if(AERIE_SANITIZE MATCHES "undefined") # a third of the time to compile; AddressSanitizer sees what such a pointer touches
    list(APPEND flags -fno-sanitize=null,pointer-overflow,object-size)
  endif()
  set_source_files_properties(${ARGN} PROPERTIES LANGUAGE C COMPILE_OPTIONS "${flags}")
  add_library(${target} OBJECT ${ARGN})
  set_property(TARGET ${target} PROPERTY C_STANDARD)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${target} PRIVATE ${AERIE_INCLUDE})
  target_compile_definitions(${target} PRIVATE AE_GPU_EMU)
endfunction()

if(AERIE_EMU)
  aerie_emu_kernels(aerie_emu ${AERIE_KERNELS})
  foreach(library ${AERIE_LIBRARIES})
    target_sources(${library} PRIVATE $<TARGET_OBJECTS:aerie_emu>)
  endforeach()
  set_property(SOURCE ${AERIE_GPU_SOURCES} APPEND PROPERTY COMPILE_DEFINITIONS AE_GPU_EMU)
  if(AERIE_SANITIZE MATCHES "thread") # the emulation tells ThreadSanitizer what its fibers are, and is not looked at itself
    set_source_files_properties(${AERIE_EMU_SOURCES} PROPERTIES COMPILE_OPTIONS "-fno-sanitize=thread;-DAE_EMU_TSAN")
  endif()
else()
  set_source_files_properties(${AERIE_EMU_SOURCES} PROPERTIES HEADER_FILE_ONLY ON)
endif()

# ---- CUDA ---------------------------------------------------------------------------------------------------------------
find_program(AERIE_NVCC nvcc HINTS ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(AERIE_NVCC AND CMAKE_SYSTEM_NAME STREQUAL "Linux" AND NOT CMAKE_CROSSCOMPILING)
  set(cuda_default ON)
else()
  set(cuda_default OFF)
endif()
option(AERIE_CUDA "Build the CUDA backend (needs nvcc)" ${cuda_default})
set(AERIE_CUDA_ARCHS "75;80;86;89;90;100;120" CACHE STRING "Compute capabilities that the CUDA backend is built for")

if(AERIE_CUDA AND NOT AERIE_NVCC)
  message(FATAL_ERROR "AERIE_CUDA needs nvcc; it is looked for in PATH, CUDA_PATH and /usr/local/cuda")
endif()
if(AERIE_CUDA AND AERIE_KERNELS)
  # -fmad=false and its kin: the bits are part of the interface (kernels/kernel.h)
  set(nvcc_flags -fatbin --resource-usage -std=c++17 -fmad=false -ftz=false -prec-div=true -prec-sqrt=true
      -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include)
  if(AERIE_WERROR)
    list(APPEND nvcc_flags -Werror all-warnings)
  endif()
  foreach(arch ${AERIE_CUDA_ARCHS})
    list(APPEND nvcc_flags -gencode arch=compute_${arch},code=sm_${arch})
  endforeach()
  list(GET AERIE_CUDA_ARCHS -1 arch)
  list(APPEND nvcc_flags -gencode arch=compute_${arch},code=compute_${arch})
  set(folder ${PROJECT_BINARY_DIR}/cuda)
  file(MAKE_DIRECTORY ${folder})
  set(declarations "")
  set(entries "")
  set(images "")
  foreach(kernel ${AERIE_KERNELS})
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR}/src/backend/gpu/kernels ${kernel})
    string(REGEX REPLACE "\\.cu$" "" name ${name})
    string(REPLACE "/" "_" name ${name})
    # What is said of registers and spills stays in a file, for tests/house/check_sass.py.
    add_custom_command(OUTPUT ${folder}/${name}.fatbin DEPENDS ${kernel} DEPFILE ${folder}/${name}.d
      COMMAND sh -c "\"$@\" >${folder}/${name}.usage 2>&1 || { cat ${folder}/${name}.usage; exit 1; }" sh
              ${AERIE_NVCC} ${nvcc_flags} -MD -MT ${folder}/${name}.fatbin -MF ${folder}/${name}.d
              -o ${folder}/${name}.fatbin ${kernel}
      COMMENT "Compiling ${name}.cu for CUDA" VERBATIM)
    list(APPEND images ${folder}/${name}.fatbin)
    string(APPEND declarations "IMAGE(${name})\n")
    string(APPEND entries "    {ae_gpu_image_${name}, ae_gpu_image_end_${name}},\n")
  endforeach()
  list(LENGTH AERIE_KERNELS n_images)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/images.c.in ${folder}/images.c @ONLY)
  set_source_files_properties(${folder}/images.c PROPERTIES OBJECT_DEPENDS "${images}")
  add_library(aerie_images OBJECT ${folder}/images.c)
  set_target_properties(aerie_images PROPERTIES POSITION_INDEPENDENT_CODE ON)
  foreach(library ${AERIE_LIBRARIES})
    target_sources(${library} PRIVATE $<TARGET_OBJECTS:aerie_images>)
  endforeach()
  list(TRANSFORM AERIE_CUDA_ARCHS PREPEND sm_ OUTPUT_VARIABLE arch_names)
  list(JOIN arch_names ", " arch_names)
  set_property(SOURCE ${AERIE_GPU_SOURCES} APPEND PROPERTY
    COMPILE_DEFINITIONS AE_GPU_CUDA "AE_GPU_CUDA_ARCHS=\"${arch_names}\"")
endif()
