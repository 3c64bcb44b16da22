# What `cmake --install` copies, and the Debian package that `cpack -G DEB` makes of it.

include(GNUInstallDirs)

install(TARGETS shoal RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES docs/man/shoal.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES src/cli/completions/shoal.bash
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME shoal)
install(FILES src/cli/completions/_shoal
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
install(FILES src/cli/completions/shoal.fish
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

set(CPACK_PACKAGE_NAME shoal)
set(CPACK_PACKAGE_VENDOR "The Shoal authors")
set(CPACK_PACKAGE_CONTACT "The Shoal authors <shoal@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)
set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# The demo model is fetched by pip.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3-pip")
include(CPack)
