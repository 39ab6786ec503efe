"""Object code of earlier processes becomes machine code in memory, without LLVM."""
