# What an installed library needs: headers, both libraries, aerie.pc for pkg-config, and find_package(aerie) for CMake with
# the targets aerie::aerie (shared) and aerie::aerie_static. All of it may be moved: no path is absolute.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(AERIE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/aerie)

install(FILES ${PROJECT_SOURCE_DIR}/include/aerie.h TYPE INCLUDE)
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
