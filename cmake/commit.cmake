# Writes OUT, a header that says which commit of SOURCE is built; left alone where it says so already. Nothing in it depends on
# the time or the machine. Without git (a tarball) AERIE_COMMIT is empty.
set(commit "")
find_package(Git QUIET)
if(GIT_FOUND AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} rev-parse --short=12 HEAD OUTPUT_VARIABLE commit ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
  if(failed)
    set(commit "")
  else()
    execute_process(COMMAND ${GIT_EXECUTABLE} -C ${SOURCE} --no-optional-locks diff --quiet HEAD -- . ERROR_QUIET
                    RESULT_VARIABLE changed)
    if(NOT changed EQUAL 0)
      string(APPEND commit " with changes")
    endif()
  endif()
endif()
set(text "#define AERIE_COMMIT \"${commit}\"\n#define AERIE_BUILD \"${BUILD}\"\n")
if(EXISTS ${OUT})
  file(READ ${OUT} old)
endif()
if(NOT "${old}" STREQUAL "${text}")
  file(WRITE ${OUT} "${text}")
endif()
