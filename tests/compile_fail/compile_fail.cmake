# cmake -D EXPECTED=<regular expression> -P compile_fail.cmake -- <compile command>
include(${CMAKE_CURRENT_LIST_DIR}/../command_line.cmake)

execute_process(COMMAND ${command} -DPOSITIVE RESULT_VARIABLE result ERROR_VARIABLE message)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "The good form does not compile:\n${message}")
endif()

execute_process(COMMAND ${command} RESULT_VARIABLE result ERROR_VARIABLE message)
if(result EQUAL 0)
  message(FATAL_ERROR "This compiles, and must not.")
endif()
if(NOT message MATCHES "${EXPECTED}")
  message(FATAL_ERROR "This fails to compile, but not with '${EXPECTED}':\n${message}")
endif()
