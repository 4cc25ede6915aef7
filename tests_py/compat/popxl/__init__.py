"""PopXL's public interface: modules, names, signatures, behaviour in corners."""
