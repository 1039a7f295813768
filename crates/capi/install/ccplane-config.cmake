# find_package(ccplane) defines ccplane::ccplane, ccplane::static, and ccplane::libccp for programs
# that include <ccp.h>.
get_filename_component(CCPLANE_PREFIX "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET ccplane::ccplane)
  add_library(ccplane::ccplane SHARED IMPORTED)
  set_target_properties(ccplane::ccplane PROPERTIES
    IMPORTED_LOCATION "${CCPLANE_PREFIX}/lib/libccplane.so.0"
    IMPORTED_SONAME "libccplane.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${CCPLANE_PREFIX}/include")
  add_library(ccplane::static STATIC IMPORTED)
  set_target_properties(ccplane::static PROPERTIES
    IMPORTED_LOCATION "${CCPLANE_PREFIX}/lib/libccplane.a"
    INTERFACE_INCLUDE_DIRECTORIES "${CCPLANE_PREFIX}/include"
    INTERFACE_LINK_LIBRARIES "pthread;dl;m")
  add_library(ccplane::libccp INTERFACE IMPORTED)
  set_target_properties(ccplane::libccp PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${CCPLANE_PREFIX}/include/ccplane"
    INTERFACE_LINK_LIBRARIES ccplane::ccplane)
endif()
