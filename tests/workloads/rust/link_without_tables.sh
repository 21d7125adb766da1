#!/bin/sh -e
# A linker that takes the unwind tables out of a crate's own objects first: rustc writes them whatever
# -Cforce-unwind-tables says.
for file in "$@"; do
    case $file in *.rcgu.o) objcopy --remove-section .eh_frame --remove-section .rela.eh_frame "$file" ;; esac
done
exec cc "$@"
