"""The bridge into a live Pi: an extension inside Pi, this process beside it, JSON-RPC between the two.

``host/docs/pi-bridge.md`` describes the protocol. `extension.ts` is what ``contexthost pi install`` puts into Pi's
extensions directory; it starts ``contexthost pi serve``, which is `contexthost.pi.server`.
"""
