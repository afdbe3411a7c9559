# What an installed library needs: headers, both libraries, aerie.pc for pkg-config, and find_package(aerie) for CMake with
# the targets aerie::aerie (shared) and aerie::aerie_static. All of it may be moved: no path is absolute.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(AERIE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/aerie)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ TYPE INCLUDE FILES_MATCHING PATTERN *.h)
set_target_properties(aerie_shared PROPERTIES EXPORT_NAME aerie)
foreach(kind shared static) # apart: only the static library needs the libraries that it is made with
  install(TARGETS aerie_${kind} EXPORT aerie_${kind} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT aerie_${kind} NAMESPACE aerie:: DESTINATION ${AERIE_CMAKE_DIR} FILE aerie-${kind}.cmake)
endforeach()
configure_package_config_file(cmake/aerie-config.cmake.in aerie-config.cmake INSTALL_DESTINATION ${AERIE_CMAKE_DIR})
write_basic_package_version_file(aerie-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/aerie-config.cmake ${PROJECT_BINARY_DIR}/aerie-config-version.cmake
        DESTINATION ${AERIE_CMAKE_DIR})

file(RELATIVE_PATH AERIE_PC_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix) # seen from aerie.pc
configure_file(cmake/aerie.pc.in aerie.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/aerie.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/share/grammars DESTINATION ${CMAKE_INSTALL_DATADIR}/aerie)

# The documents, which link to each other, and the examples for running the server.
install(FILES ${PROJECT_SOURCE_DIR}/README.md ${PROJECT_SOURCE_DIR}/CHANGELOG.md ${PROJECT_SOURCE_DIR}/SECURITY.md TYPE DOC)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs ${PROJECT_SOURCE_DIR}/deploy TYPE DOC PATTERN try.py EXCLUDE)

# The units, with the place of the program that they start.
foreach(unit aerie.service aerie.socket)
  install(CODE "
    set(name \"\${CMAKE_INSTALL_PREFIX}/lib/systemd/system/${unit}\")
    file(READ \"${PROJECT_SOURCE_DIR}/share/${unit}\" text)
    string(REPLACE \"/usr/bin/aerie\" \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/aerie\" text \"\${text}\")
    message(STATUS \"Installing: \$ENV{DESTDIR}\${name}\")
    file(WRITE \"\$ENV{DESTDIR}\${name}\" \"\${text}\")
    list(APPEND CMAKE_INSTALL_MANIFEST_FILES \"\${name}\")")
endforeach()

# What the program says of itself, written while it is installed: the manual page, and completion for bash, zsh and fish.
if(TARGET aerie AND NOT CMAKE_CROSSCOMPILING)
  foreach(pair --man=${CMAKE_INSTALL_MANDIR}/man1/aerie.1
               --completion-bash=${CMAKE_INSTALL_DATADIR}/bash-completion/completions/aerie
               --completion-zsh=${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions/_aerie
               --completion-fish=${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d/aerie.fish)
    string(REPLACE "=" ";" pair ${pair})
    list(GET pair 0 option)
    list(GET pair 1 path)
    install(CODE "
      set(file \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${path}\")
      get_filename_component(folder \"\${file}\" DIRECTORY)
      file(MAKE_DIRECTORY \"\${folder}\")
      message(STATUS \"Installing: \${file}\")
      execute_process(COMMAND \"$<TARGET_FILE:aerie>\" ${option} OUTPUT_FILE \"\${file}\" RESULT_VARIABLE failed)
      list(APPEND CMAKE_INSTALL_MANIFEST_FILES \"\${CMAKE_INSTALL_PREFIX}/${path}\")
      if(failed)
        message(FATAL_ERROR \"'aerie ${option}' failed: \${failed}\")
      endif()")
  endforeach()
endif()

# Programs find the library in /usr/local/lib by the linker's cache, which only root may write. A folder for a package has none.
if(UNIX AND NOT APPLE)
  install(CODE "
    if(\"\$ENV{DESTDIR}\" STREQUAL \"\")
      execute_process(COMMAND sh -c \"PATH=\\$PATH:/usr/sbin:/sbin; ldconfig\" RESULT_VARIABLE ignored OUTPUT_QUIET ERROR_QUIET)
    endif()")
endif()
